"""The rank that the others of a new group go on from."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hearth.plan.split import Plan
from hearth.trainer.exchange import StepSum
from hearth.trainer.preferences import SUMS
from hearth.trainer.progress import LogWindow, Progress, Standing, StepResult, furthest


def standing(rank, step, done=0, launch="x", keeps=True, generation=1):
    return Standing(rank, keeps, launch, generation, step, done, None)


def test_the_others_go_on_from_whoever_is_furthest():
    assert furthest([standing(0, 4, 9), standing(1, 5), standing(2, 5)]).rank == 1
    assert furthest([standing(0, 5, 1), standing(2, 5, 2)]).rank == 2


def test_a_rank_that_has_loaded_alone_has_nothing_to_give():
    assert furthest([standing(0, 0, launch=""), standing(1, 0)]).rank == 1
    assert furthest([standing(0, 0, launch="")]) is None


def test_ranks_whose_steps_were_not_taken_together_do_not_have_the_same_training():
    # One was lost after an evaluation that the others then had not done: they formed a group.
    lost, *others = standing(0, 5, 2, generation=1), standing(1, 5, 2, generation=2)
    assert furthest([lost, *others]).rank == 1
    assert lost.reached() != others[0].reached()


def test_a_step_that_no_record_has_is_done_again():
    assert furthest([standing(0, 4), standing(1, 5, keeps=False)]).rank == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=5))
def test_all_agree_in_whatever_order_they_hear_of_each_other(reached):
    everyone = [standing(rank, step, done) for rank, (step, done) in enumerate(reached)]
    assert furthest(everyone) == furthest(everyone[::-1])
    assert (furthest(everyone).step, furthest(everyone).done) == max(reached)


def test_progress_arrives_with_the_steps_that_are_not_logged_yet():
    numbers = {name: [1.0, 0.0] for name in ("compute_seconds", "wait_seconds", "norm", "squares")}
    numbers |= {name: [2.0, 0.0] for name in ("peak_memory_mib", "celsius", "joules")}
    numbers |= {name: [0.0, 0.0] for name in ("hop_bytes", "hop_seconds")}
    counts = {name: [3, 0] for name in ("tokens", "micro_batch", "labels", "taken", "skipped")}
    counts |= {"metered": [1, 0], "disk": [1, 1]}
    sums = dict.fromkeys(SUMS, 0.0)
    summed = StepSum(loss=0.5, **sums, stop=False, keep=False, pause=True, **numbers, **counts)
    window = LogWindow()
    window.add(StepResult((Plan((7, 0), (1, 1)),), summed, 0.1, 1.0), 2.5)
    progress = Progress("launch", 4, 3, 2, announced=True, nodes=("a", "b"), window=window)
    found = Progress.from_state(progress.state())
    assert found.state() == progress.state()
    assert found.nodes == ("a", "b")
    assert found.window.record() == window.record()
