"""Nodes of a simulated cluster, whatever goes wrong: tests/support/toy_cluster.py.

At every step the cluster itself checks that no two groups train.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from support.facts import assert_names
from support.toy_cluster import OWN_ERROR, Cluster
from support.toy_faults import CURED, HEALED, explore, faults, inflict
from support.voting_network import WRONG

NAMES = ("desk", "laptop", "shelf", "tower")
EVER = 10**9
TOGETHER = 150.0
"""All nodes train together again within these seconds of the last fault."""

simulated = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
SOME = st.integers(2, 4).map(lambda count: NAMES[:count])


def cluster(draw: st.DataObject, names: tuple[str, ...], steps: int, **terms: object) -> Cluster:
    """Return a cluster that was just switched on, or has trained for a while."""
    made = Cluster(names, Random(draw.draw(st.integers(0, 999))), steps, **terms)
    made.run(draw.draw(st.sampled_from([0.0, 4.0, 20.0])))
    return made


def inflict_all(made: Cluster, several: list) -> None:
    for each in several:
        inflict(made, each)


def in_vain(made: Cluster) -> bool:
    """Return whether the nodes that ended did so because their ranks failed again and again."""
    ended = [node.outcome for node in made.nodes.values() if node.outcome]
    return bool(ended) and all(
        end.cause and end.cause.node in made.names and "in a row" in end.cause.message
        for end in ended
    )


@simulated
@given(st.data(), SOME)
def test_after_the_last_fault_all_train_together_and_stay_together(data, names):
    made = cluster(data, names, EVER)
    inflict_all(made, data.draw(faults(names, 7)))
    made.run(HEALED)
    together = made.run(TOGETHER, lambda: made.training == names)
    note(made.story())
    if in_vain(made):
        return
    assert together
    groups = len(made.groups)
    made.run(30)
    assert made.training == names
    assert len(made.groups) == groups


@pytest.mark.parametrize("seed", range(6))
def test_no_two_groups_train_whatever_the_order_of_messages(seed):
    assert explore(seed, steps=10).steps


def test_such_histories_show_a_rule_by_which_two_groups_train():
    (half,) = [rules for rules in WRONG if "half" in rules.name]
    with half.in_force(), pytest.raises(AssertionError, match="two groups train"):
        for seed in range(5):
            explore(seed, steps=10)


@simulated
@given(st.data(), SOME, st.sampled_from(["stop", "stop now"]))
def test_a_stop_ends_the_run_on_every_node(data, names, kind):
    made = cluster(data, names, EVER)
    kinds = tuple(each for each in CURED if each != "leave")
    inflict_all(made, data.draw(faults(names, 3, kinds)))
    node = data.draw(st.sampled_from(names))
    assert made.run(100, lambda: made.whole)
    inflict(made, (0.0, kind, node, node, 0.0))
    made.run(0.1)  # A node that is cut off before the others hear of it ends alone.
    inflict_all(made, data.draw(faults(names, 1, kinds)))
    # A node that was down meanwhile finds that the others have ended.
    assert made.run(500, lambda: not made.open)
    note(made.story())
    outcomes = {node.outcome.state for node in made.nodes.values()}
    assert outcomes <= {"stopped", "failed"}
    assert all(node.outcome.cause.node in names for node in made.nodes.values())


@simulated
@given(st.data(), SOME)
def test_a_run_ends_as_finished_whatever_happened_on_the_way(data, names):
    made = cluster(data, names, 40)
    inflict_all(made, data.draw(faults(names, 3, ("kill rank", "cut", "suspend", "isolate"))))
    assert made.run(1000, lambda: not made.open)
    note(made.story())
    states = [node.outcome.state for node in made.nodes.values()]
    # One that was away until the others had ended cannot know how.
    assert "finished" in states or in_vain(made)
    steps = {step for _, _, step in made.steps}
    assert not steps or steps >= {*range(max(steps) // 10 * 10 + 1, max(steps) + 1)}


@simulated
@given(st.data(), SOME)
def test_an_error_of_a_ranks_own_ends_the_run_and_is_named_everywhere(data, names):
    made = cluster(data, names, EVER)
    node = data.draw(st.sampled_from(names))
    if not made.run(60, lambda: made.nodes[node].up and made.nodes[node].rank.alive):
        return
    made.fail_rank(node)
    assert made.run(120, lambda: not made.open)
    for each in made.nodes.values():
        assert each.outcome.state == "failed"
        cause = each.outcome.cause
        assert cause.node in names
        if cause.kind == "rank_failed":
            assert (cause.node, cause.message) == (node, OWN_ERROR)


@simulated
@given(st.data())
def test_only_whole_teams_train_without_elastic(data):
    names = NAMES[:3]
    made = cluster(data, names, EVER, elastic=False)
    inflict_all(made, data.draw(faults(names, 4)))
    made.run(HEALED)
    assert made.run(TOGETHER, lambda: made.training == names) or in_vain(made)
    assert all(group.form.nodes == names for group in made.groups.values())


@pytest.mark.parametrize("lost", NAMES[:3])
def test_the_others_go_on_within_a_second_and_no_step_is_lost(lost):
    names = NAMES[:3]
    made = Cluster(names, Random(lost), EVER)
    assert made.run(60, lambda: made.training == names)
    made.run(3.3)
    made.kill(lost, 15)
    others = tuple(name for name in names if name != lost)
    assert made.run(1, lambda: made.training == others)
    assert made.run(60, lambda: made.training == names)
    made.run(5)
    steps = [step for _, _, step in made.steps]
    # A survivor may have had the sum of the step in which the node was lost.
    assert all(after - before in (1, 2) for before, after in pairwise(steps))


@pytest.mark.parametrize("walled", NAMES[:3])
def test_a_firewall_that_came_up_costs_the_others_no_step(walled):
    made = Cluster(NAMES[:3], Random(walled), EVER)
    assert made.run(60, lambda: made.training == NAMES[:3])
    made.want("shelf", 20)
    assert made.run(10, lambda: made.training == NAMES[:2])
    made.raise_wall(walled, 120)
    made.run(20)
    before, groups = len(made.steps), len(made.groups)
    made.run(60)
    assert len(made.groups) == groups
    assert len(made.steps) - before >= 59
    assert made.run(80, lambda: made.training == NAMES[:3])


def test_the_rest_of_a_run_waits_for_who_is_missing_and_then_names_it():
    made = Cluster(NAMES[:2], Random(1), EVER, return_timeout=300.0)
    assert made.run(60, lambda: made.training == NAMES[:2])
    made.kill("desk", 10_000)
    assert not made.run(299, lambda: made.nodes["laptop"].outcome is not None)
    assert made.run(10, lambda: made.nodes["laptop"].outcome is not None)
    outcome = made.nodes["laptop"].outcome
    assert (outcome.state, outcome.cause.kind, outcome.cause.node) == (
        "failed",
        "node_lost",
        "desk",
    )
    assert "killed or the machine went down" in outcome.cause.message


# A fault before the first team


@pytest.mark.parametrize("names", [NAMES[:2], NAMES[:3]])
def test_a_disk_that_is_full_from_the_start_keeps_only_its_own_node_out(names):
    made = Cluster(names, Random(1), EVER)
    made.fill_disk(names[-1], 90)
    assert made.run(40, lambda: made.training == names[:-1])
    assert made.run(60 + TOGETHER, lambda: made.training == names)


def test_no_run_begins_while_every_disk_is_full():
    made = Cluster(NAMES[:2], Random(1), EVER)
    for name in made.names:
        made.fill_disk(name, 60)
    assert not made.run(59, lambda: bool(made.training))
    assert made.run(TOGETHER, lambda: made.training == made.names)


@pytest.mark.parametrize("elastic", [True, False])
def test_a_disk_that_fails_before_the_first_team_is_its_own_nodes_fault(elastic):
    made = Cluster(NAMES[:3], Random(1), EVER, elastic=elastic)
    made.run(2.5)
    made.fail_rank("shelf", of_machine=True)
    assert made.run(30, lambda: made.training == NAMES[:2]) == elastic
    if elastic:
        assert made.run(TOGETHER, lambda: made.training == NAMES[:3])


def test_a_machine_whose_ranks_never_start_is_left_out_of_a_run_that_begins_without_it():
    made = Cluster(NAMES[:3], Random(1), EVER)
    for _ in range(400):
        made.run(0.5)
        made.fail_rank("shelf", of_machine=True)
    assert made.training == NAMES[:2]
    outcome = made.nodes["shelf"].outcome
    assert outcome.cause.node == "shelf"
    assert_names(outcome.cause.message, "in a row", "left out")
