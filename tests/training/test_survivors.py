"""When a node is lost the others go on in place, and the result is that of one process."""

from __future__ import annotations

import pytest
from support.ranks import furthest, trained
from support.team import (
    BARRIER,
    CHECKPOINT,
    MICRO_BATCH,
    SHARE,
    SUM,
    Fault,
    Team,
    timeless,
)

from hearth.ranks.orders import Leave, Load, Waiting

STEPS = 6


@pytest.fixture(scope="module")
def settings(tiny_model, tiny_data):
    """Return the settings of every run here."""
    return {
        **{"model": str(tiny_model), "dataset": str(tiny_data), "sequence_length": 96},
        **{"learning_rate": 0.01, "global_batch": 7, "max_steps": STEPS, "split": "equal"},
        **{"micro_batch": 1, "precision": "fp64", "wandb": "off", "evaluate": False},
    }


@pytest.fixture(scope="module")
def trained_by(tmp_path_factory, settings):
    """Return a function that trains with more settings by hand, once for each."""
    known = {}

    def run(ranks=1, **more):
        key = (ranks, *sorted(more.items()))
        if key not in known:
            folder = tmp_path_factory.mktemp("by-hand")
            typed = []
            for name, value in {**settings, **more}.items():
                option = name.replace("_", "-")
                if isinstance(value, bool):
                    typed.append(f"--{option}" if value else f"--no-{option}")
                else:
                    typed += [f"--{option}", value]
            known[key] = trained(folder, "by-hand", ranks, *typed)
        return known[key]

    return run


def steps(team, node):
    return [each["step"] for each in team.records(node) if each["kind"] == "step"]


def teams(team, node):
    return [each for each in team.records(node) if each["kind"] == "team"]


def assert_ended_alike(team, nodes, expected, within=1e-9):
    """Require that these nodes ended with the same record, each step once, and what is expected."""
    team.end(*nodes)
    first, *others = (timeless(team.records(node)) for node in nodes)
    assert all(each == first for each in others)
    assert steps(team, nodes[0]) == list(range(1, STEPS + 1))
    for node in nodes:
        assert furthest(team.learned(node), expected) < within
        assert team.records(node)[-1]["kind"] == "end"


KILLED = {
    "before it has computed its rows": (MICRO_BATCH, 7, True),
    "before the sum": (SUM, 3, True),
    "after the sum": (SUM, 3, False),
}


@pytest.mark.parametrize("when", KILLED)
@pytest.mark.parametrize("lost", ["a", "b"])
def test_the_others_go_on_when_one_is_killed(tmp_path, settings, trained_by, lost, when):
    call, number, before = KILLED[when]
    others = [node for node in "abc" if node != lost]
    with Team(tmp_path, settings, Fault(lost, call, number, before=before)) as team:
        team.begin()
        team.regroup(*others)
        assert_ended_alike(team, others, trained_by())
        (change,) = teams(team, others[0])
        assert (change["nodes"], [*change["left"]], change["joined"]) == (others, [lost], [])
        assert change["step"] == (2 if before else 3)


def test_the_last_one_goes_on_when_both_others_are_killed(tmp_path, settings, trained_by):
    faults = Fault("a", SUM, 2, before=True), Fault("b", SUM, 4)
    with Team(tmp_path, settings, *faults) as team:
        team.begin()
        team.regroup("b", "c")
        since = len(team.ranks.said)
        team.regroup("c", since=since)
        assert_ended_alike(team, ["c"], trained_by())
        assert [each["step"] for each in teams(team, "c")] == [1, 4]


@pytest.mark.parametrize("behind", [["a"], ["c"], ["a", "b"]], ids="".join)
def test_who_lacks_the_sum_gets_it_from_who_has_it(tmp_path, settings, trained_by, behind):
    faults = [Fault(node, SUM, 3, act="break") for node in behind]
    with Team(tmp_path, settings, *faults) as team:
        team.begin()
        team.regroup("a", "b", "c")
        assert_ended_alike(team, ["a", "b", "c"], trained_by())
        (change,) = teams(team, "a")
        assert (change["step"], change["left"], change["joined"]) == (3, {}, [])


def test_a_sum_that_nobody_has_is_made_again(tmp_path, settings, trained_by):
    faults = [Fault(node, SUM, 3, act="break") for node in "abc"]
    with Team(tmp_path, settings, *faults) as team:
        team.begin()
        team.regroup("a", "b", "c")
        assert_ended_alike(team, ["a", "b", "c"], trained_by())
        assert [each["step"] for each in teams(team, "a")] == [2]


@pytest.mark.parametrize("more", [{}, {"lora": False, "log_every": 4}], ids=["adapter", "model"])
def test_a_node_that_comes_back_gets_the_state_and_joins_between_two_steps(
    tmp_path, settings, trained_by, more
):
    fault = Fault("b", SUM, 3, act="stop", before=True)
    with Team(tmp_path, {**settings, **more}, fault) as team:
        choices = team.begin_slowly("b", "b", "c")
        team.ranks.start("a")
        team.ranks.hear(Waiting, 0)
        team.ranks.order(Load(choices), 0)
        (loaded,) = team.ranks.hear(Waiting, 0, where=lambda told: told.loaded)
        assert (loaded.message.why, loaded.message.step) == ("new", 0)
        team.ranks.pause(1, 2)
        team.wake("b")
        since = len(team.ranks.said)
        (paused,) = team.ranks.hear(Waiting, 1, since=since)
        assert paused.message.why == "paused"
        team.regroup("a", "b", "c")
        team.end()
        records = [timeless(team.records(node)) for node in "abc"]
        assert records[0] == records[1] == records[2]
        (change,) = teams(team, "a")
        assert (change["joined"], change["left"]) == (["a"], {})
        assert change["step"] < STEPS
        last = [each for each in team.records("a") if each["kind"] == "step"][-1]
        assert all(last["rows_by_rank"])
        for node in "abc":
            assert furthest(team.learned(node), trained_by(**more)) < 1e-9


EVALUATED = {"evaluate": True, "eval_every": 2, "held_out": 0.2}
SAMPLE = "hearth.trainer.evaluation:Evaluator._sample"
LOSSES = "hearth.trainer.evaluation:Evaluator._losses"
FAULTS = {
    "before the first step": Fault("b", LOSSES, 1, before=True),
    "in the middle": Fault("b", LOSSES, 2, before=True),
    "with the best weights on the others": Fault("b", LOSSES, 3),
    "after the last step": Fault("a", LOSSES, 4, before=True),
    "at the sample answer": Fault("a", SAMPLE, 2, before=True),
    "in a checkpoint": Fault("a", CHECKPOINT, 1, before=True),
    "at the very end": Fault("a", BARRIER, 1, before=True),
}


@pytest.mark.parametrize("when", FAULTS)
def test_a_loss_outside_of_steps_repeats_and_loses_nothing(tmp_path, settings, trained_by, when):
    fault = FAULTS[when]
    others = [node for node in "abc" if node != fault.node]
    more = {**settings, **EVALUATED, "checkpoint_every": 2}
    with Team(tmp_path, more, fault) as team:
        team.begin()
        team.regroup(*others)
        assert_ended_alike(team, others, trained_by(**EVALUATED))
        for node in others:
            kinds = [each["kind"] for each in team.records(node)]
            assert kinds.count("evaluate") == 4
            assert kinds.count("sample") == 2
            checkpoints = team.folder(node) / "checkpoints"
            assert (checkpoints / f"step-{STEPS:08}" / "best").exists()
            assert (team.folder(node) / "best").exists()


@pytest.mark.parametrize("number", [1, 3, 4])
def test_who_lacks_an_evaluation_gets_it_with_the_best_weights(
    tmp_path, settings, trained_by, number
):
    fault = Fault("a", LOSSES, number, act="break")
    with Team(tmp_path, {**settings, **EVALUATED}, fault) as team:
        team.begin()
        team.regroup("a", "b", "c")
        assert_ended_alike(team, ["a", "b", "c"], trained_by(**EVALUATED))
        assert [each["kind"] for each in team.records("a")].count("evaluate") == 4


MUON = {"lora": False, "scratch": True, "optimizer": "muon", "weight_decay": 0.1}


@pytest.mark.parametrize(
    "fault",
    [Fault("a", SHARE, 3, "break"), Fault("b", SHARE, 3, before=True)],
    ids=["late", "lost"],
)
def test_muon_takes_the_step_that_a_loss_interrupted_once(tmp_path, settings, trained_by, fault):
    others = list("abc") if fault.act == "break" else ["a", "c"]
    with Team(tmp_path, {**settings, **MUON}, fault) as team:
        team.begin()
        team.regroup(*others)
        assert_ended_alike(team, others, trained_by(**MUON), within=1e-8)


ROUNDS = {"sync_every": 2}


@pytest.mark.parametrize("late", ["c", "abc"])
def test_an_interrupted_round_is_undone_and_taken_again(tmp_path, settings, trained_by, late):
    faults = [Fault(node, SUM, 2, "break") for node in late]
    with Team(tmp_path, {**settings, **ROUNDS}, *faults) as team:
        team.begin()
        team.regroup("a", "b", "c")
        team.end()
        whole = trained_by(ranks=3, **ROUNDS)
        for node in "abc":
            assert furthest(team.learned(node), whole) < 1e-12
            assert steps(team, node) == [2, 4, 6]


def test_a_rank_that_leaves_keeps_its_state_and_the_run_can_be_resumed(
    tmp_path, settings, trained_by
):
    fault = Fault("b", SUM, 3, act="stop", before=True)
    with Team(tmp_path, settings, fault) as team:
        team.begin_slowly("b")
        team.ranks.pause()
        team.wake("b")
        since = len(team.ranks.said)
        team.ranks.hear(Waiting, since=since)
        team.ranks.order(Leave(save=True))
        team.end()
        (end,) = (each for each in team.records("c") if each["kind"] == "end")
        assert end["state"] == "stopped"
        team.begin()
        assert_ended_alike(team, ["a", "b", "c"], trained_by())


def test_ranks_that_all_loaded_alone_begin_together(tmp_path, settings, trained_by):
    with Team(tmp_path, settings) as team:
        team.ranks.start("a", "c")
        team.ranks.hear(Waiting, 0, 2)
        team.ranks.order(Load({"precision": "fp64", "optimizer": "adamw"}))
        team.regroup("a", "c")
        assert_ended_alike(team, ["a", "c"], trained_by())


def test_a_rank_whose_group_breaks_while_it_loads_asks_to_be_started_again(tmp_path, settings):
    fault = Fault("b", "hearth.trainer.assembly:Parts.__init__", 1, before=True)
    with Team(tmp_path, settings, fault) as team:
        team.begin("a", "b")
        assert team.ranks.wait(0, 1) == [75, -9]
