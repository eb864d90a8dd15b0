"""A node that is lost, and comes back: real supervisors on loopback, a stand-in for torchrun."""

from __future__ import annotations

import functools
import os
import re
import signal

import pytest
from support.facts import assert_names
from support.programs import stand_in
from support.supervisors import LOOP, Nodes
from support.waiting import HANG, until

from hearth.supervisor.unit import LEFT

KILLS_TORCHRUN = """
import os
from pathlib import Path
parent = os.getppid()  # the supervisor, if torchrun has ended
if os.environ["RANK"] == "1" and b"stand-in" in Path(f"/proc/{parent}/cmdline").read_bytes():
    os.kill(parent, 9)
"""


@pytest.fixture
def nodes(nodes):
    """Make nodes whose runs outlive a loss."""
    return functools.partial(nodes, return_timeout=60, silence_timeout=4)


@pytest.fixture
def begun(nodes):
    """Make nodes whose ranks work under the first generation."""

    def begin(count: int, script: str = LOOP, **settings: object) -> Nodes:
        run = nodes(count, script, **settings)
        run.start()
        until_team(run, 0)
        return run

    return begin


def until_team(run: Nodes, beyond: int, *nodes: str) -> int:
    """Wait until the ranks of these nodes (all) work in one team; return its generation.

    The generation is higher than `beyond`.
    """

    def newest(node: str) -> int:
        told = re.findall(r"^generation (\d+) rank", run.log(node), re.M)
        return int(told[-1]) if told else 0

    def together() -> set[int]:
        return {newest(node) for node in nodes or run.names}

    until(lambda: len(together()) == 1 and min(together()) > beyond)
    return newest((nodes or run.names)[0])


def finish(run: Nodes) -> dict[str, dict]:
    """Let the ranks of all nodes end; return the records of the nodes."""
    for node in run.names:
        (run.workspace(node) / "results/first/enough").touch()
    return run.wait()


def launches(record: dict) -> list[tuple[int, str, str]]:
    return [
        (each["generation"], each["cause"]["node"], each["cause"]["kind"])
        for each in record["launches"]
    ]


def test_a_killed_torchrun_starts_all_again_under_a_new_generation(begun):
    run = begun(3)
    first = run.record("node2")["generation"]
    run.torchrun("node2").kill()
    second = until_team(run, first)
    for record in finish(run).values():
        assert (record["state"], record["generation"]) == ("finished", second)
        assert (record["cause"], launches(record)) == (None, [(first, "node2", "rank_failed")])


@pytest.mark.rotated
@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_a_supervisor_that_comes_back_is_waited_for(begun, victim):
    run = begun(3)
    first = run.record("node2")["generation"]
    run.kill(victim)
    others = [name for name in run.names if name != victim]
    run.until_down()
    until(lambda: all(run.record(name)["state"] == "waiting" for name in others))
    until(lambda: all(run.record(name)["missing"] == [victim] for name in others))
    run.start(victim)
    second = until_team(run, first)
    for record in finish(run).values():
        assert (record["state"], record["generation"]) == ("finished", second)
        assert launches(record) == [(first, victim, "node_lost")]


@pytest.mark.rotated
@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_a_supervisor_that_has_to_end_though_nobody_asked_is_waited_for(
    nodes, tmp_path, monkeypatch, victim
):
    """A stand-in of systemctl answers as where the user's systemd is stopped."""
    monkeypatch.setenv("PATH", f"{tmp_path}/programs:{os.environ['PATH']}")
    answers = 'case "$*" in "--user is-system"*) echo stopping;; *) echo deactivating;; esac'
    stand_in(tmp_path / "programs" / "systemctl", answers)
    run = nodes(2)
    run.options = ("--unit", "hearth-first.service")
    run.start()
    first = until_team(run, 0)
    run.supervisor(victim).terminate()
    assert run.supervisor(victim).wait(HANG) == LEFT
    (other,) = {*run.names} - {victim}
    until(lambda: run.record(other)["missing"] == [victim])
    assert run.record(victim)["state"] == "running"
    run.start(victim)
    until_team(run, first)
    for record in finish(run).values():
        assert (record["state"], launches(record)) == ("finished", [(first, victim, "node_lost")])


@pytest.mark.rotated
def test_a_machine_that_only_slept_joins_again_by_itself(begun):
    run = begun(3)
    first = run.record("node0")["generation"]
    run.supervisor("node1").send_signal(signal.SIGSTOP)
    until(lambda: run.record("node0")["state"] == "waiting")
    run.supervisor("node1").send_signal(signal.SIGCONT)
    until_team(run, first)
    assert {record["state"] for record in finish(run).values()} == {"finished"}


@pytest.mark.rotated
def test_who_never_comes_back_ends_the_run_with_its_loss(begun):
    run = begun(2, return_timeout=10, ready_timeout=10)
    run.supervisor("node1").kill()
    record = run.wait("node0")["node0"]
    assert record["state"] == "failed"
    assert record["cause"]["node"] == "node1"
    assert_names(record["cause"]["message"], "node1", "broke off", "back within 10 s")


@pytest.mark.rotated
def test_launches_that_lead_nowhere_come_to_an_end(nodes):
    run = nodes(2, KILLS_TORCHRUN + LOOP, return_timeout=120)
    run.start()
    for record in run.wait().values():
        assert record["state"] == "failed"
        assert record["cause"]["node"] == "node1"
        assert_names(record["cause"]["message"], "4 starts in a row")
        assert len(record["launches"]) == 3


@pytest.mark.rotated
def test_a_stop_reaches_those_who_wait_for_a_lost_node(begun):
    run = begun(3)
    run.supervisor("node2").kill()
    until(lambda: all(run.record(name)["state"] == "waiting" for name in ("node0", "node1")))
    until(lambda: run.record("node0")["missing"] == ["node2"])
    run.stop("node1")
    for record in run.wait("node0", "node1").values():
        assert (record["state"], record["cause"]["node"]) == ("stopped", "node1")


@pytest.mark.parametrize("victim", ["node0", "node1"])
def test_elastic_goes_on_without_any_node_and_takes_it_in_again(begun, victim):
    run = begun(3, elastic=True, min_nodes=2)
    first = run.record("node2")["generation"]
    run.kill(victim)
    others = [name for name in run.names if name != victim]
    second = until_team(run, first, *others)
    assert f"generation {second} rank 1 step" in run.log("node2")  # there are two ranks now
    assert_names(run.log("node2"), f"with {', '.join(others)};")
    run.start(victim)
    third = until_team(run, second)
    assert f"generation {third} rank 2 step" in run.log("node2")
    for name, record in finish(run).items():
        assert (record["state"], record["generation"]) == ("finished", third), name
    lost_and_back = [(first, victim, "node_lost"), (second, victim, "node_back")]
    assert launches(run.record("node2")) == lost_and_back


FULL_ONCE = """
import os
from pathlib import Path
if os.environ["HEARTH_NODE"] == "node1" and not Path("tried").exists():
    Path("tried").touch()
    raise OSError(28, "No space left on device")
"""


def test_a_disk_that_is_full_before_the_first_checkpoint_is_its_own_nodes_fault(nodes):
    run = nodes(3, FULL_ONCE + LOOP, elastic=True)
    run.start()
    until(lambda: "forming a group of node0, node2 " in run.log("node0"))
    until_team(run, 1)
    for record in finish(run).values():
        assert record["state"] == "finished"
        assert record["launches"][0]["cause"]["node"] == "node1"
        assert_names(record["launches"][0]["cause"]["message"], "No space left on device")


@pytest.mark.rotated
def test_a_pause_for_a_node_that_is_lost_again_does_not_end_the_run(begun):
    # Nobody ends its step before the node has left.
    left = 'Path("left").exists() and not Path("left").unlink() or'
    run = begun(3, LOOP.replace('Path("stop").exists() or', left), elastic=True, min_nodes=2)
    run.kill("node1")
    others = ("node0", "node2")
    second = until_team(run, run.record("node0")["generation"], *others)
    run.start("node1")
    stop_files = [run.workspace(node) / "results/first/stop" for node in others]
    until(lambda: all(file.exists() and file.read_text() == "pause\n" for file in stop_files))
    run.kill("node1")
    for file in stop_files:
        file.with_name("left").touch()
    until_team(run, second, *others)
    assert not any(file.exists() for file in stop_files)


@pytest.mark.rotated
def test_a_group_of_which_one_node_was_lost_at_the_end_is_launched_again(begun):
    run = begun(2)
    first = run.record("node0")["generation"]
    enough = [run.workspace(node) / "results/first/enough" for node in run.names]
    enough[0].touch()
    until(lambda: "torchrun ended with status 0" in run.log("node0"))
    run.kill("node1")
    until(lambda: run.record("node0")["missing"] == ["node1"])
    enough[0].unlink()
    run.start("node1")
    until_team(run, first)
    assert {record["state"] for record in finish(run).values()} == {"finished"}


def lose_both(run: Nodes, said: str) -> None:
    """Kill both supervisors, have their stop files say this, and bring them back."""
    for node in run.names:
        run.kill(node)
    run.until_down()
    for node in run.names:
        (run.workspace(node) / "results/first/stop").write_text(said)
    run.start()


@pytest.mark.rotated
def test_a_pause_that_was_left_behind_does_not_end_the_run(begun):
    run = begun(2)
    first = run.record("node0")["generation"]
    lose_both(run, "pause\n")
    second = until_team(run, first)
    for node in run.names:
        told = f"generation {second} rank {node[-1]} step 20"
        until(lambda node=node, told=told: told in run.log(node))
        assert not (run.workspace(node) / "results/first/stop").exists()
    assert {record["state"] for record in finish(run).values()} == {"finished"}


@pytest.mark.rotated
@pytest.mark.parametrize("said", ["stop\n", ""])
def test_a_stop_that_was_asked_for_before_the_machine_went_down_holds(begun, said):
    run = begun(2)
    lose_both(run, said)
    assert {record["state"] for record in run.wait().values()} == {"stopped"}
