"""Supervisors of a run in place as real processes on loopback, with stand-ins of the ranks."""

from __future__ import annotations

import pytest
from support.facts import assert_names
from support.waiting import until


def test_three_nodes_form_a_group_and_finish(team):
    run = team(3)
    run.start()
    run.until_group()
    for record in run.finish().values():
        assert (record["state"], record["exit_code"], record["cause"]) == ("finished", 0, None)
        assert (record["missing"], record["launches"]) == ([], [])
    run.every_step_once()


@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_after_a_killed_rank_the_others_go_on_and_the_node_joins_again(team, victim):
    run = team(3)
    run.start()
    first = run.until_group()
    others = [name for name in run.names if name != victim]
    run.rank(victim).kill()
    until(lambda: f"of {len(others)} step" in run.log(others[0]))
    last = run.until_group(beyond=first + 1)
    assert last == first + 2
    for node, record in run.finish().items():
        assert (record["state"], record["cause"]) == ("finished", None)
        if node != victim:
            left, back = (each["cause"] for each in record["launches"])
            assert (left["node"], left["rank"], left["kind"]) == (
                victim,
                int(victim[-1]),
                "rank_failed",
            )
            assert_names(left["message"], "signal 9 (SIGKILL)")
            assert (back["node"], back["kind"]) == (victim, "node_back")
    run.every_step_once(*others)


@pytest.mark.parametrize("victim", ["node0", "node2"])
def test_after_a_killed_supervisor_the_others_go_on_and_it_joins_again(team, victim):
    run = team(3)
    run.start()
    first = run.until_group()
    others = [name for name in run.names if name != victim]
    run.kill(victim)
    second = run.until_group(*others, beyond=first)
    for node in others:
        cause = run.record(node)["launches"][0]["cause"]
        assert (cause["node"], cause["kind"]) == (victim, "node_lost")
        assert_names(cause["message"], "broke off")
    run.start(victim)
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once(*others)
