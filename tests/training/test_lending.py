"""Nodes that the owner wants, as real processes on loopback, with stand-ins of the ranks."""

from __future__ import annotations

import os
import time

import pytest
from support.facts import assert_names
from support.programs import stand_in
from support.waiting import HANG, until

from hearth.supervisor.unit import LEFT

ROUNDS = 4  # each of the three nodes leaves, and one again


def until_away(run, *nodes: str) -> None:
    """Wait until these nodes have no ranks, and no process that could hold memory."""
    until(lambda: all(run.record(node)["away"] for node in nodes))
    run.until_down(*nodes)


@pytest.mark.rotated
def test_again_and_again_a_node_leaves_and_returns_and_the_others_hardly_wait(team):
    run = team(3)
    run.start()
    last = run.until_group()
    for number in range(ROUNDS):
        node = run.names[number % 3]
        others = [name for name in run.names if name != node]
        ranks = [run.rank(name).pid for name in others]
        run.want(node)
        last = run.until_group(*others, beyond=last)
        until_away(run, node)
        assert run.record(node)["state"] == "waiting"
        assert_names(run.record(node)["away"], "by hand")
        run.let_go(node)
        last = run.until_group(beyond=last)
        assert [run.rank(name).pid for name in others] == ranks
        assert run.record(node)["away"] == ""
    for node, record in run.finish().items():
        assert (record["state"], record["cause"]) == ("finished", None)
        assert "broken" not in run.log(node)
        left = [each["cause"] for each in record["launches"] if each["cause"]["kind"] == "away"]
        assert len(left) == ROUNDS
    run.every_step_once()


@pytest.mark.rotated
@pytest.mark.parametrize("wanted", [("node0", "node1"), ("node0", "node1", "node2")])
def test_several_leave_at_once_and_come_back(team, wanted):
    run = team(3)
    run.start()
    first = run.until_group()
    for node in wanted:
        run.want(node)
    until_away(run, *wanted)
    if len(wanted) < 3:
        run.until_group("node2", beyond=first)
    else:
        until(lambda: all(len(run.record(node)["missing"]) == 3 for node in run.names))
        for record in map(run.record, run.names):
            assert record["state"] == "waiting"
            assert record["cause"]["kind"] == "away"
            assert_names(record["cause"]["message"], "by hand", "node1", "node2")
    for node in wanted:
        run.let_go(node)
    run.until_group(beyond=first)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once()


@pytest.mark.rotated
def test_where_the_owner_has_the_machine_at_the_start_no_ranks_are_started(team):
    run = team(3)
    run.want("node0")
    run.start()
    first = run.until_group("node1", "node2")
    assert run.steps("node0") == []
    assert "starting torchrun" not in run.log("node0")
    run.kill("node0")
    second = run.until_group("node1", "node2", beyond=first - 1)
    run.start("node0")
    time.sleep(2)
    assert "starting torchrun" not in run.log("node0")
    run.let_go("node0")
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once()


def test_a_stop_ends_the_run_at_once_also_where_the_owner_has_the_machine(team):
    run = team(3)
    run.start()
    first = run.until_group()
    run.want("node0")
    run.until_group("node1", "node2", beyond=first)
    until_away(run, "node0")
    run.stop("node0")
    assert {record["state"] for record in run.wait().values()} == {"stopped"}
    assert {record["away"] for record in map(run.record, run.names)} == {""}


@pytest.mark.rotated
def test_a_machine_that_is_restarted_while_the_owner_has_it_comes_back_to_that(
    team, tmp_path, monkeypatch
):
    """A stand-in of systemctl answers as where the machine is shut down."""
    monkeypatch.setenv("PATH", f"{tmp_path}/programs:{os.environ['PATH']}")
    stand_in(tmp_path / "programs" / "systemctl", "echo stopping")
    run = team(2)
    run.options = ("--unit", "hearth-first.service")
    run.start()
    first = run.until_group()
    run.want("node0")
    second = run.until_group("node1", beyond=first)
    until_away(run, "node0")
    run.supervisor("node0").terminate()
    assert run.supervisor("node0").wait(HANG) == LEFT
    run.start("node0")
    until(lambda: run.log("node0").count("the owner") > 1)
    run.let_go("node0")
    run.until_group(beyond=second)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once()


@pytest.mark.rotated
def test_without_elastic_the_others_wait_with_their_ranks_alive(team):
    run = team(2, elastic=False, return_timeout=10, ready_timeout=10)
    run.start()
    first = run.until_group()
    rank = run.rank("node1").pid
    run.want("node0")
    until_away(run, "node0")
    until(lambda: run.record("node1")["missing"] == ["node0"])
    assert run.record("node1")["cause"]["kind"] == "away"
    time.sleep(12)
    run.let_go("node0")
    run.until_group(beyond=first)
    assert run.rank("node1").pid == rank
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once()


@pytest.mark.rotated
def test_a_held_out_evaluation_is_broken_off_and_the_others_do_it_again(team):
    run = team(3)
    run.start()
    first = run.until_group()
    for node in ("node1", "node0", "node2"):  # whom the others wait for begins
        (run.results(node) / "evaluate").touch()
        time.sleep(0.5)
    run.want("node1")
    until_away(run, "node1")
    for node in run.names:
        (run.results(node) / "evaluate").unlink()
    run.until_group("node0", "node2", beyond=first)
    run.let_go("node1")
    run.until_group(beyond=first + 1)
    assert {record["state"] for record in run.finish().values()} == {"finished"}
    run.every_step_once()


@pytest.mark.rotated
def test_a_run_that_ignores_lending_keeps_the_node(team):
    run = team(2, lend={})
    run.want("node0")
    run.start()
    run.until_group()
    assert {record["state"] for record in run.finish().values()} == {"finished"}


@pytest.mark.rotated
def test_a_command_of_the_persons_takes_the_node_away_with_its_reason(team, tmp_path):
    played = tmp_path / "played"
    run = team(2, lend={"command": f"! cat {played}", "after": 0})
    played.write_text("the children play\n")
    run.start()
    until_away(run, "node0", "node1")
    assert run.record("node0")["away"].startswith("the children play")
    played.unlink()
    run.until_group()
    assert {record["state"] for record in run.finish().values()} == {"finished"}
