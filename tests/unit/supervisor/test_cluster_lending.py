"""Nodes that the owner wants, and that come back: clusters of tests/support/toy_cluster.py.

At every step the cluster itself checks that no two groups train.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from support.toy_cluster import Cluster
from support.toy_faults import CURED, HEALED, faults, inflict
from support.toy_rank import Rank

NAMES = ("desk", "laptop", "shelf", "tower")
EVER = 10**9
SETTLED = 40.0
"""Within these seconds the nodes that lend train together."""

simulated = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
SOME = st.integers(2, 4).map(lambda count: NAMES[:count])


def wants(names: tuple[str, ...], most: int) -> st.SearchStrategy[list[tuple[float, str, float]]]:
    """Return a strategy of seconds before, a node that the owner wants, and for how long."""
    return st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.03, 0.5, 1.0, 5.0, 30.0]) | st.floats(0, 20),
            st.sampled_from(names),
            st.sampled_from([0.05, 0.5, 3.0, 20.0, 90.0]),
        ),
        max_size=most,
    )


def play(made: Cluster, several: list[tuple[float, str, float]]) -> None:
    for after, node, length in several:
        made.run(after)
        made.want(node, length)


def each_step_once(made: Cluster) -> None:
    steps = [step for _, _, step in made.steps]
    assert steps == [*range(1, len(steps) + 1)]


def trained(names: tuple[str, ...], seed: object = 1, **terms: object) -> Cluster:
    """Return a cluster whose nodes train together."""
    made = Cluster(names, Random(str(seed)), EVER, **terms)
    assert made.run(60, lambda: made.training == names)
    made.run(3.3)
    return made


@simulated
@given(st.data(), SOME)
def test_whoever_lends_trains_and_no_step_is_taken_twice(data, names):
    made = Cluster(names, Random(data.draw(st.integers(0, 999))), EVER)
    made.run(data.draw(st.sampled_from([0.0, 4.0, 20.0])))
    for _ in range(3):
        play(made, data.draw(wants(names, 5)))
        lending = tuple(name for name in names if not made.nodes[name].owner)
        until = min(
            (made.now + SETTLED, *(made.now + 30 for name in names if made.nodes[name].owner))
        )
        made.run(until - made.now)
        still = tuple(name for name in names if not made.nodes[name].owner)
        note(made.story())
        if still == lending and until == made.now + SETTLED:
            assert made.training == lending
    assert made.run(150, lambda: made.training == names)
    assert made.open == names
    each_step_once(made)


@simulated
@given(st.data(), SOME)
def test_with_losses_and_cuts_all_train_together_once_everything_is_over(data, names):
    made = Cluster(names, Random(data.draw(st.integers(0, 999))), EVER)
    made.run(data.draw(st.sampled_from([0.0, 4.0, 20.0])))
    kinds = ("want", "want", *CURED)
    for fault in data.draw(faults(names, 8, kinds)):
        inflict(made, fault)
    made.run(HEALED)
    together = made.run(150, lambda: made.training == names)
    note(made.story())
    ended = [node.outcome for node in made.nodes.values() if node.outcome]
    if ended and all("in a row" in end.cause.message for end in ended):
        return
    assert together
    made.run(30)
    assert made.training == names


@simulated
@given(st.data(), SOME, st.sampled_from(["stop", "stop now"]))
def test_a_stop_ends_the_run_at_once_also_where_the_owner_has_the_machine(data, names, kind):
    made = trained(names, data.draw(st.integers(0, 999)))
    for node in data.draw(st.sets(st.sampled_from(names), min_size=1)):
        made.want(node, EVER)
    made.run(data.draw(st.sampled_from([0.0, 0.7, 2.0, 20.0])))
    asked = data.draw(st.sampled_from(names))
    inflict(made, (0.0, kind, asked, asked, 0.0))
    assert made.run(10, lambda: not made.open)
    assert {node.outcome.state for node in made.nodes.values()} == {"stopped"}


@simulated
@given(st.data(), SOME)
def test_a_run_ends_as_finished_everywhere_whoever_comes_and_goes(data, names):
    made = Cluster(names, Random(data.draw(st.integers(0, 999))), 40)
    made.run(data.draw(st.sampled_from([0.0, 4.0, 20.0])))
    play(made, data.draw(wants(names, 6)))
    assert made.run(1000, lambda: not made.open)
    note(made.story())
    assert {node.outcome.state for node in made.nodes.values()} == {"finished"}
    each_step_once(made)


@pytest.mark.parametrize(
    ("wanted", "length"),
    [
        *((NAMES[:1], length) for length in (5.0, 40.0)),
        *((NAMES[:2], length) for length in (5.0, 40.0)),
        *((NAMES[1:3], length) for length in (5.0, 40.0)),
        *((NAMES[:3], length) for length in (5.0, 40.0, 900.0)),
    ],
)
def test_a_run_waits_without_end_for_machines_of_which_the_owner_wants_all_or_some(wanted, length):
    names = NAMES[:3]
    made = trained(names, f"{wanted} {length}", return_timeout=300.0)
    for node in wanted:
        made.want(node, length)
    made.run(length)
    others = tuple(name for name in names if name not in wanted)
    if length > SETTLED / 2:
        assert made.training == others
    assert made.run(60, lambda: made.training == names)
    assert made.open == names
    each_step_once(made)


@pytest.mark.parametrize("terms", [{"elastic": False}, {"min_nodes": 3}])
def test_a_run_of_all_nodes_or_none_waits_without_end_for_the_one_that_the_owner_wants(terms):
    names = NAMES[:3]
    made = trained(names, return_timeout=200.0, **terms)
    made.want("laptop", 500)
    steps = len(made.steps)
    made.run(500)
    assert len(made.steps) <= steps + 1
    assert made.run(9, lambda: made.training == names)
    assert made.open == names
    each_step_once(made)


def test_a_run_that_lost_a_node_waits_without_end_for_one_that_can_stand_in_for_it():
    names = NAMES[:3]
    made = trained(names, return_timeout=300.0, min_nodes=2)
    made.want("laptop", 1200)
    assert made.run(20, lambda: made.training == ("desk", "shelf"))
    made.kill("shelf", EVER)
    made.run(1150)
    assert made.open == names
    assert made.run(90, lambda: made.training == names[:2])
    each_step_once(made)


@simulated
@given(
    st.permutations(["stays", "away", "lost", "lost"]) | st.permutations(["stays", "away", "lost"]),
    st.sampled_from([("away", "lost"), ("lost", "away")]),
    st.sampled_from([{}, {"min_nodes": 2}, {"min_nodes": 3}, {"elastic": False}]),
    st.integers(0, 999),
)
def test_time_counts_for_lost_nodes_just_if_the_run_would_not_go_on_with_those_away(
    fates, order, terms, seed
):
    names = NAMES[: len(fates)]

    def played(until: float) -> Cluster:
        made = trained(names, seed, return_timeout=300.0, **terms)
        end = made.now + until
        for fate in order:
            for node in [name for name, its in zip(names, fates, strict=True) if its == fate]:
                made.want(node, end - made.now) if fate == "away" else made.kill(node, EVER)
            made.run(15)
        made.run(end - made.now - 1)
        return made

    ended = any(node.outcome for node in played(900.0).nodes.values())
    in_time = played(200.0)
    in_time.run(SETTLED)
    note(in_time.story())
    assert ended == (not in_time.training)


def test_time_in_which_only_the_owner_held_up_the_run_does_not_count_for_a_loss():
    names = NAMES[:2]
    made = trained(names, return_timeout=300.0)
    for node in names:
        made.want(node, 600)
    made.run(100)
    made.kill("desk", 750)
    made.run(502)  # laptop lends again, and cannot know whether desk trains
    assert not made.run(290, lambda: bool(made.nodes["laptop"].outcome))
    assert made.run(60, lambda: made.training == names)


@pytest.mark.parametrize("wanted", [*NAMES[:3], NAMES[:2], NAMES[1:3]])
def test_the_ranks_of_a_wanted_node_are_gone_at_once_and_the_others_go_on(wanted):
    names = NAMES[:3]
    made = trained(names, wanted)
    wanted = (wanted,) if isinstance(wanted, str) else wanted
    ranks: list[Rank] = [made.nodes[node].rank for node in wanted]
    for node in wanted:
        made.want(node, 30)
    others = tuple(name for name in names if name not in wanted)
    assert made.run(2, lambda: not any(rank.alive for rank in ranks))
    assert made.run(1, lambda: made.training == others)
    times = [at for at, _, _ in made.steps if at > made.now - 10]
    made.run(10)
    assert all(after - before < 3 for before, after in pairwise(times))


def test_a_supervisor_that_starts_where_the_owner_has_the_machine_starts_no_ranks():
    names = NAMES[:3]
    made = Cluster(names, Random(5), EVER)
    made.want("desk", 100)
    assert made.run(60, lambda: made.training == names[1:])
    made.run(20)
    made.kill("desk", 5)
    made.run(20)
    assert made.nodes["desk"].state.ranks.state == "away"
    assert made.run(100, lambda: made.training == names)
    each_step_once(made)


def test_a_machine_that_shuts_down_while_the_owner_has_it_goes_and_comes_back_to_that():
    names = NAMES[:3]
    made = trained(names)
    made.want("shelf", 200)
    assert made.run(10, lambda: made.training == names[:2])
    made.leave("shelf", 10)
    assert made.run(2, lambda: not made.nodes["shelf"].up)
    made.run(60)
    assert made.nodes["shelf"].state.ranks.state == "away"
    assert made.run(200, lambda: made.training == names)
    each_step_once(made)


@pytest.mark.parametrize("names", [NAMES[:1], NAMES[:2], NAMES])
@pytest.mark.parametrize("apart", [0.0, 0.4])
def test_nodes_that_all_shut_down_end_after_one_step_with_a_checkpoint(names, apart):
    made = trained(names)
    formed = len(made.groups)
    for name in names:
        made.leave(name, 30)
        made.run(apart)
    assert made.run(5, lambda: not any(node.up for node in made.nodes.values()))
    assert len(made.groups) <= formed + len(names) * (apart > 0)
    assert max(node.kept for node in made.nodes.values()) == len(made.steps)
    assert made.run(120, lambda: made.training == names)
    made.run(5)
    each_step_once(made)
