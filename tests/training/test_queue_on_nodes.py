"""Runs that wait for their turn: real supervisors on loopback, in place and relaunching.

Stand-ins take the place of torchrun, and in place of the ranks.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta

import psutil
import pytest
from support.facts import assert_names
from support.phone import impatient, phone, telling
from support.rotated import in_turn
from support.supervisors import LOOP, Nodes
from support.teams import Team
from support.waiting import until

from hearth.supervisor.mesh import KNOCK
from hearth.supervisor.unit import LEFT

# Longer than between two questions to a node whether it is there.
TIMES = {"ready_timeout": 1.5 * KNOCK, "silence_timeout": 5, "return_timeout": 1.5 * KNOCK}


@pytest.fixture(params=["resident", *in_turn("relaunched")])
def house(request, tmp_path):
    """Make runs on the same two nodes, and end all that they started."""
    made: list[Nodes] = []

    def make(run: str, position: float = 0, **settings) -> Nodes:
        queue = {"position": position, "at": settings.pop("at", None), "submitted": "2026"}
        given = {**TIMES, **({"queue": queue} if position else {}), **settings}
        if request.param == "resident":
            made.append(Team(tmp_path, 2, run=run, **given))
        else:
            made.append(Nodes(tmp_path, 2, LOOP, run=run, **given))
        return made[-1]

    make.resident = request.param == "resident"
    yield make
    for each in made:
        each.close()


def state(run: Nodes, node: str) -> str:
    return run.record(node)["state"]


def until_state(wanted: str, run: Nodes, *nodes: str) -> None:
    until(lambda: all(state(run, node) == wanted for node in nodes or run.names))


def why(run: Nodes, node: str = "node0") -> str:
    return (run.record(node)["cause"] or {}).get("message", "")


def finish(run: Nodes, *nodes: str) -> None:
    """Let the ranks of a run end, and wait for the end of its supervisors."""
    for node in nodes or run.names:
        (run.workspace(node) / "results" / run.run / "enough").touch()
    records = run.wait(*nodes)
    assert {record["state"] for record in records.values()} == {"finished"}


def only(run: Nodes, node: str) -> Nodes:
    """Have a run on one node alone."""
    rank = run.names.index(node)
    given = json.loads(run.spec(node).read_text())
    of_all = ("nodes", "addresses", "ports", "nprocs")
    run.change(node, rank=0, **{name: given[name][rank : rank + 1] for name in of_all})
    run.names = [node]
    return run


def queued(run: Nodes, node: str = "node0") -> list[str]:
    return sorted(path.stem for path in (run.workspace(node) / "queue").glob("*.json"))


@pytest.mark.rotated
@pytest.mark.slow
def test_of_three_queued_runs_one_is_removed_one_fails_and_the_last_one_trains(house):
    evening, removed, fails = house("evening"), house("removed", 1), house("fails", 2)
    last = house("last", 3)
    fails.change("node1", python="/nowhere/python")
    evening.start()
    until_state("running", evening)
    for run in (removed, fails, last):
        run.start()
        until_state("queued", run)
    until(lambda: why(last) == "waits behind fails, 3rd in the queue")
    assert why(removed) == "waits behind evening, 1st in the queue"
    assert queued(last) == ["fails", "last", "removed"]
    assert removed.status("node1")["alive"]

    for node in removed.names:
        assert removed.stop(node) == {"ok": True, "asked": True, "state": "queued"}
    for node, record in removed.wait().items():
        assert record["state"] == "stopped"
        assert_names(record["cause"]["message"], "waited for its turn", node)
    assert state(evening, "node0") == "running"
    until(lambda: why(last) == "waits behind fails, 2nd in the queue")

    finish(evening)
    for record in fails.wait().values():
        assert (record["state"], record["cause"]["node"]) == ("failed", "node1")
    until_state("running", last)
    finish(last)
    for node in last.names:
        assert [*(last.workspace(node) / "queue").iterdir()] == []


@pytest.mark.rotated
@pytest.mark.slow
def test_after_all_supervisors_were_killed_and_started_again_the_queue_is_as_it_was(house):
    evening, second, third = house("evening"), house("second", 1), house("third", 2)
    for run in (evening, second, third):
        run.start()
        until_state("running" if run is evening else "queued", run)
    until(lambda: why(third) == "waits behind second, 2nd in the queue")
    began = evening.record("node0")["launches"]
    for run in (third, second, evening):
        for node in run.names:
            run.kill(node)
    evening.until_down()
    for run in (evening, second, third):
        run.start()
        if run is evening:
            until(lambda: len(evening.record("node0")["launches"]) > len(began))
    until_state("running", evening)
    until(lambda: why(third) == "waits behind second, 2nd in the queue")
    assert why(second, "node1") == "waits behind evening, 1st in the queue"
    finish(evening)
    until_state("running", second)
    assert state(third, "node1") == "queued"
    finish(second)
    until_state("running", third)
    finish(third)


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("busy", ["node0", "node1"])
def test_a_run_whose_turn_has_come_on_one_node_waits_for_the_other_as_long_as_it_takes(
    house, busy, tmp_path
):
    with phone() as here:
        evening, night = only(house("evening"), busy), house("night", 1)
        impatient(
            telling(night, here.json), tmp_path, seconds=2 * KNOCK
        )  # a node tells every three
        waits_for_its_turn(evening, night, busy)
    assert here.titles == ["night finished"]  # that it waited was no news


def waits_for_its_turn(evening: Nodes, night: Nodes, busy: str) -> None:
    """Have one run wait for another one that has one of its nodes, and then play it."""
    free = next(node for node in night.names if node != busy)
    evening.start()
    until_state("running", evening)
    night.start()
    until_state("waiting", night, free)
    until_state("queued", night, busy)
    time.sleep(2 * TIMES["return_timeout"])
    assert (state(night, free), state(night, busy)) == ("waiting", "queued")
    finish(evening)
    until_state("running", night)
    finish(night)


@pytest.mark.rotated
@pytest.mark.slow
def test_a_node_that_never_answers_ends_the_run_and_the_next_one_trains(house):
    night, next_one = house("night", 1), only(house("next", 2), "node0")
    night.start("node0")
    until_state("waiting", night, "node0")
    next_one.start()
    until(lambda: state(next_one, "node0") in ("queued", "waiting", "running"))
    record = night.wait("node0")["node0"]
    assert (record["state"], record["cause"]["node"]) == ("failed", "node1")
    until_state("running", next_one)
    finish(next_one)


@pytest.mark.rotated
@pytest.mark.slow
def test_a_run_that_waits_for_a_node_gives_way_to_one_that_is_moved_before_it(house):
    evening, night = only(house("evening"), "node1"), house("night", 2)
    moved = only(house("moved", 3), "node0")
    evening.start()
    until_state("running", evening)
    night.start()
    until_state("waiting", night, "node0")
    moved.start()
    until(lambda: why(moved) == "waits behind night, 1st in the queue")
    place = moved.workspace("node0") / "queue/moved.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "position": 1}))
    until_state("running", moved)
    until(lambda: why(night) == "waits behind moved, 1st in the queue")
    finish(evening)
    until_state("waiting", night, "node1")
    finish(moved)
    until_state("running", night)
    finish(night)
    assert "moved comes first; back to the queue" in night.log("node0")


@pytest.mark.rotated
@pytest.mark.slow
@pytest.mark.parametrize("back", ["node0", "node1"])
def test_a_run_that_has_begun_on_one_node_goes_first_on_one_that_is_back_in_the_queue(house, back):
    times = {"return_timeout": 120, "elastic": False}
    night, moved = house("night", 2, **times), house("moved", 1, **times)
    other = next(node for node in night.names if node != back)
    night.start()
    until_state("running", night)
    moved.start()
    until_state("queued", moved)
    night.kill(back)  # its node lost the race: it gave way to a run that was moved before it
    record = {**night.record(back), "state": "queued", "launches": [], "cause": None}
    place = night.workspace(back) / "results/night/supervisor.json"
    place.write_text(json.dumps(record))
    until_state("waiting", moved, back)
    entry = night.workspace(back) / "queue/night.json"
    entry.write_text(json.dumps({"position": 2, "at": None, "submitted": "2026"}))
    night.start(back)
    until(lambda: "moved, 1st in the queue there" in night.log(other))
    until(lambda: why(moved, back) == "waits behind night, 1st in the queue")
    until_state("running", night)
    assert "night comes first; back to the queue" in moved.log(back)
    until(lambda: queued(night, back) == ["moved"])
    finish(night)
    until_state("running", moved)
    finish(moved)


@pytest.mark.rotated
def test_a_run_starts_at_its_time_and_until_then_another_one_may_train(house):
    at = datetime.now(UTC) + timedelta(seconds=25)
    night, quick = house("night", 1, at=at.isoformat()), house("quick", 2)
    night.start()
    until_state("queued", night)
    assert why(night) == f"starts at {at.astimezone():%H:%M}"
    quick.start()
    until_state("running", quick)
    finish(quick)
    until_state("running", night)
    assert datetime.now(UTC) >= at
    finish(night)


@pytest.mark.rotated
def test_a_supervisor_that_waits_is_light_and_ends_at_sigterm(house):
    evening, night = house("evening"), house("night", 1)
    evening.start()
    until_state("running", evening)
    night.start()
    until_state("queued", night)
    waiting = psutil.Process(night.supervisor("node0").pid)
    assert waiting.memory_info().rss < 100 << 20
    assert not waiting.children()
    before, began = sum(waiting.cpu_times()[:2]), time.monotonic()
    time.sleep(3)
    assert sum(waiting.cpu_times()[:2]) - before < 0.1 * (time.monotonic() - began)
    for node in night.names:
        night.supervisor(node).terminate()
    assert {record["state"] for record in night.wait().values()} == {"stopped"}
    finish(evening)


def test_a_launch_is_told_who_has_the_node_and_who_waits(house):
    evening, night, other = house("evening"), house("night", 1), house("other")
    evening.start()
    until_state("running", evening)
    night.start()
    until_state("queued", night)
    _, answer = other.inspect("node0")
    assert_names("\n".join(answer["findings"]), "'evening' is under way", "-e queue=on")
    assert answer["facts"]["busy"] == "evening"
    assert answer["facts"]["queue_end"] == 1
    _, answer = night.inspect("node0")
    assert_names("\n".join(answer["findings"]), "'night' waits in the queue here already")
    status, answer = night.verb("start", "--spec", night.spec("node0"))
    assert (status, answer["started"], answer["state"]) == (0, False, "queued")
    finish(evening)
    until_state("running", night)
    night.stop("node0")
    assert {record["state"] for record in night.wait().values()} == {"stopped"}


@pytest.mark.rotated
def test_a_machine_that_is_shut_down_leaves_the_run_in_the_queue(house, tmp_path):
    evening, night = house("evening"), house("night", 1)
    ending = tmp_path / "bin/systemctl"
    ending.parent.mkdir()
    ending.write_text("#!/bin/sh\necho stopping\n")
    ending.chmod(0o755)
    evening.start()
    until_state("running", evening)
    night.variables = {"PATH": f"{ending.parent}:/usr/bin:/bin"}
    night.start()
    until_state("queued", night)
    for node in night.names:
        night.supervisor(node).terminate()
    night.wait()
    assert [night.supervisor(node).returncode for node in night.names] == [LEFT, LEFT]
    assert queued(night) == ["night"]
    night.start()
    finish(evening)
    until_state("running", night)
    finish(night)
