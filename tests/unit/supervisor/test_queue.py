"""The files of a queue on a node, and the runs in it that count."""

from __future__ import annotations

import asyncio
import fcntl
import json
import threading
import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.facts import assert_names, refuses
from support.supervisors import free_port

from hearth.base import systemd
from hearth.base.errors import LaunchError
from hearth.supervisor import in_turn
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.decisions.events import PeerSaid
from hearth.supervisor.decisions.voting import Config, Votes
from hearth.supervisor.mesh import Mesh
from hearth.supervisor.messages import NodeReport, Stop
from hearth.supervisor.queue import (
    QueueEntry,
    coming_back,
    enter_queue,
    entry_from,
    in_queue,
    leave_queue,
    mark_begun,
    read_queue,
)
from hearth.supervisor.record import RunRecord, node_lock
from hearth.supervisor.spec import Spec, record_file


def spec(workspace, run: str = "night", **queue: object) -> Spec:
    given = {"position": 2.0, "at": None, "submitted": "2026-11-26T20:00:00+00:00", **queue}
    return Spec(
        *(run, "desk", 0, ("desk",), ("127.0.0.1",), 1, "python"),
        workspace=workspace,
        token="secret",
        ports=(4711,),
        nprocs=(1,),
        queue=given,
    )


@pytest.fixture
def units(tmp_path, monkeypatch):
    """The folder of the user's units."""
    folder = tmp_path / "units"
    folder.mkdir()
    monkeypatch.setattr(systemd, "units_folder", lambda: folder)
    return folder


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def recorded(workspace, run: str, state: str) -> None:
    path = record_file(workspace, run)
    path.parent.mkdir(parents=True)
    RunRecord(run, "desk", 0, 0, pid=1, state=state).write(path)


def carried(units, workspace, run: str) -> None:
    """Let a run have a unit."""
    place = workspace / "config" / f"{run}.json"
    (units / f"hearth-{run}.service").write_text(f'ExecStart=python run --spec "{place}"\n')


def test_a_run_enters_the_queue_once_and_keeps_the_place_to_which_it_was_moved(workspace, units):
    at = "2026-11-26T22:00:00+00:00"
    with in_queue(workspace, "night"):
        enter_queue(spec(workspace, at=at))
        place = workspace / "queue/night.json"
        assert json.loads(place.read_text())["position"] == 2.0
        place.write_text(json.dumps({"position": 0.5, "at": at}))
        enter_queue(spec(workspace, at=at))
        begins = datetime(2026, 11, 26, 22, tzinfo=UTC)
        assert read_queue(workspace) == [QueueEntry("night", 0.5, begins)]
        leave_queue(workspace, "night")
        leave_queue(workspace, "night")
    assert read_queue(workspace) == []
    assert [*(workspace / "queue").iterdir()] == []


def test_a_run_that_has_begun_on_another_node_keeps_its_place_and_its_start(workspace, units):
    at = "2026-11-26T22:00:00+00:00"
    enter_queue(spec(workspace, at=at))
    mark_begun(workspace, "night")
    mark_begun(workspace, "night")
    mark_begun(workspace, "unknown")
    (entry,) = read_queue(workspace)
    assert (entry.begun, entry.position, entry.at) == (True, 2.0, datetime.fromisoformat(at))
    assert [path.name for path in (workspace / "queue").glob("*.json")] == ["night.json"]


def test_a_run_counts_while_its_supervisor_lives_or_systemd_brings_it_back(workspace, units):
    for position, run in enumerate(("killed", "waits", "carried", "over", "elsewhere")):
        enter_queue(spec(workspace, run, position=position))
    recorded(workspace, "carried", "queued")
    recorded(workspace, "over", "failed")
    carried(units, workspace, "carried")
    carried(units, workspace, "over")
    carried(units, workspace.with_name("other"), "elsewhere")
    with in_queue(workspace, "waits"):
        found = [(entry.run, entry.alive, entry.up) for entry in read_queue(workspace)]
    assert found == [
        ("killed", False, False),
        ("waits", True, True),
        ("carried", True, False),
        ("over", False, False),
        ("elsewhere", False, False),
    ]


@pytest.mark.parametrize("begun", [False, True])
def test_a_run_that_may_never_come_back_is_told_with_the_way_to_remove_it(
    workspace, units, monkeypatch, begun
):
    own = spec(workspace, position=5)
    recorded(workspace, "dead", "running" if begun else "queued")
    carried(units, workspace, "dead")  # whose Python is gone, perhaps
    if not begun:
        enter_queue(spec(workspace, "dead", position=1))
    enter_queue(own)
    recorded(workspace, "later", "queued")  # this run does not wait for it
    carried(units, workspace, "later")
    enter_queue(spec(workspace, "later", position=9))
    (workspace / "logs").mkdir()
    record_file(workspace, "night").parent.mkdir(parents=True)
    waiter = in_turn._Waiter(own, RunRecord.from_spec(own))

    def message() -> str:
        waiter._write(waiter._why_not_yet())
        return waiter._record.cause.message

    why = message()
    assert why in ("waits behind dead, 1st in the queue", "waits behind dead, 2nd in the queue")
    monkeypatch.setattr(in_turn, "BOOT", -1.0)  # the boot is long over
    assert_names(message(), why, "hearth runs --delete dead --yes")
    assert "later" not in message()
    (units / "hearth-dead.service").unlink()
    assert waiter._why_not_yet() == ""


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_a_run_that_has_begun_comes_back_before_the_queue_goes_on(workspace, units, state):
    assert coming_back(workspace) == ""
    recorded(workspace, "evening", state)
    assert coming_back(workspace) == ""  # nothing would start it
    carried(units, workspace, "evening")
    assert coming_back(workspace) == "evening"
    enter_queue(spec(workspace, "evening"))  # it has not begun
    assert coming_back(workspace) == ""


def test_a_program_that_looks_at_the_queue_just_then_turns_no_supervisor_away(workspace):
    (workspace / "queue").mkdir()
    looked = threading.Event()

    def read() -> None:
        with (workspace / "queue/night.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)  # as a status and the runs in the queue do
            looked.set()
            time.sleep(0.1)

    reader = threading.Thread(target=read)
    reader.start()
    looked.wait()
    with in_queue(workspace, "night"):
        reader.join()


def test_a_run_has_one_supervisor_in_the_queue(workspace):
    waits = "waits in the queue here already"
    with (
        in_queue(workspace, "night"),
        refuses(LaunchError, "'night'", waits),
        in_queue(workspace, "night"),
    ):
        pass


@pytest.mark.parametrize(
    "given",
    [
        None,
        {},
        {"position": "first"},
        {"position": 1, "at": "soon"},
        {"position": 1, "at": "2026-11-26T22:00:00"},  # of which zone?
        {"position": None},
    ],
)
def test_a_damaged_file_is_no_entry(given):
    assert entry_from("night", given) is None


def nowhere(workspace, patience: float) -> Spec:
    """Return a spec whose address no interface of this machine carries."""
    times = {"return_timeout": patience, "ready_timeout": patience}
    return replace(spec(workspace), addresses=("198.51.100.77",), **times)


def test_a_stop_is_heeded_while_a_run_waits_for_an_address_that_a_boot_brings_late(workspace):
    night = nowhere(workspace, patience=3600)
    asking = threading.Timer(0.3, lambda: night.stop_file.write_text("stop\n"))
    asking.start()
    assert in_turn.run_in_turn(night, None, fresh=True).state == "stopped"
    asking.join()
    assert read_queue(workspace) == []


def test_an_address_that_does_not_come_ends_the_run_on_this_node_and_its_place(workspace):
    night = nowhere(workspace, patience=0.2)
    with refuses(LaunchError, "198.51.100.77"):
        in_turn.run_in_turn(night, None, fresh=True)
    record = json.loads(night.record.read_text())
    assert record["state"] == "failed"
    assert_names(record["cause"]["message"], "198.51.100.77")
    assert read_queue(workspace) == []


async def waits(workspace, *messages: object) -> tuple[Spec | None, list[NodeReport], RunRecord]:
    """Have a run wait here behind another one while a node of it, at work, says these messages.

    Return what comes of the wait, the reports that the node got, and the record.
    """
    ports = (free_port(), free_port())
    pair = replace(
        spec(workspace), nodes=("desk", "laptop"), addresses=("127.0.0.1",) * 2, ports=ports
    )
    own = replace(pair, node="laptop", rank=1)
    enter_queue(own)
    events: asyncio.Queue = asyncio.Queue()
    at_work = Mesh(pair, events, print, asyncio.create_task, lambda: False)
    await at_work.open()
    record = RunRecord.from_spec(own, state="queued")
    task = asyncio.create_task(in_turn._Waiter(own, record).wait())
    reports = []
    while not task.done():
        with suppress(TimeoutError):
            event = await asyncio.wait_for(events.get(), 0.2)
            if isinstance(event, PeerSaid):
                reports.append(event.message)
        if reports and messages:
            message, *messages = messages
            at_work.tell("laptop", message)
    await at_work.close()
    return task.result(), reports, record


@pytest.mark.parametrize(
    ("ended", "state", "told"),
    [
        (Stop("desk"), "stopped", "as asked on desk"),
        (LaunchOutcome("failed", Cause("desk", 0, "rank_failed", "bad row")), "failed", "bad row"),
    ],
)
def test_a_node_that_waits_reports_why_and_hears_that_the_run_has_begun_and_ended(
    workspace, units, ended, state, told
):
    for folder in ("logs", "locks", "results/night"):
        (workspace / folder).mkdir(parents=True)
    begun = NodeReport(
        "desk", "training", Votes(Config(1, ("desk",)), (), counts=True), generation=1
    )
    with node_lock(workspace, "evening"):
        _, reports, record = asyncio.run(asyncio.wait_for(waits(workspace, begun, ended), 30))
    assert (reports[-1].state, reports[-1].why) == (
        "queued",
        "waits behind evening, 1st in the queue",
    )
    assert read_queue(workspace)[0].begun
    assert record.state == state
    assert_names(record.cause.message, told)
