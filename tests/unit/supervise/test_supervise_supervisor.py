"""A supervisor that is asked to pause; one that finds its port or its GPU gone later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from hearth.base.errors import LaunchError
from hearth.supervise import life, supervisor
from hearth.supervise.cause import LaunchOutcome
from hearth.supervise.messages import Pause


@pytest.mark.parametrize("asked", ["stop\n", "now\n", "", None])
def test_a_pause_is_laid_only_where_nobody_has_just_asked_for_a_stop(tmp_path, asked):
    laid = tmp_path / "stop"
    if asked is not None:
        laid.write_text(asked)
    heard = object.__new__(supervisor._Supervisor)
    heard._spec, heard._say = SimpleNamespace(stop_file=laid), print
    asyncio.run(heard._handle(Pause()))
    assert laid.read_text() == (life.PAUSE if asked is None else asked)


@pytest.mark.parametrize(
    ("state", "launches", "interrupted", "ends"),
    [
        ("waiting", [], False, True),
        ("running", [], False, False),
        ("waiting", [{"generation": 1}], False, False),
        ("waiting", [], True, False),
    ],
)
def test_a_run_goes_back_to_the_queue_only_if_it_has_not_begun_meanwhile(
    state, launches, interrupted, ends
):
    """It may have been told to begin after it was asked to let another one go first."""
    it = object.__new__(supervisor._Supervisor)
    it._record = SimpleNamespace(state=state, launches=launches)
    it._yields, it._interrupted, it._events = False, interrupted, asyncio.Queue()
    asked, end = life.Interrupted("moved comes first", yields=True), LaunchOutcome("finished")
    for event in (asked, end):
        it._events.put_nowait(event)
    assert asyncio.run(it._until_verdict()) == (asked if ends else end)
    assert it._yields == ends


class Taken:
    """A stand-in of the hub whose port is free from the third time on."""

    def __init__(self):
        self.tried = 0

    async def open(self):
        self.tried += 1
        if self.tried < 3:
            raise LaunchError("the port is taken")


def listen(hub, last):
    """Have a supervisor listen that left this record, or none, before it came."""
    it = object.__new__(supervisor._Supervisor)
    it._spec, it._last = SimpleNamespace(patience=20.0, queue={}), last
    asyncio.run(it._listen_at(hub.open))


def test_a_port_that_is_taken_is_an_error_at_the_start_and_waited_for_after_a_restart(monkeypatch):
    monkeypatch.setattr(life, "RETRY", 0.01)
    hub = Taken()
    with pytest.raises(LaunchError):
        listen(hub, last=None)
    assert hub.tried == 1
    listen(hub := Taken(), last={"generation": 1})
    assert hub.tried == 3


class Quiet:
    """Stands in for the link to the hub."""

    async def messages(self):
        yield "hello"


@pytest.mark.parametrize("launches", [[], [{"generation": 0}]])
@pytest.mark.parametrize(
    ("began_with", "answers", "patience", "heard"),
    [
        (0, [], 20.0, "hello"),
        (1, [1], 20.0, "hello"),
        (2, [0, 1, 2], 20.0, "hello"),
        (2, [1, 1], 0.0, "failed"),
    ],
)
def test_a_node_takes_part_again_once_its_gpus_answer(
    monkeypatch, launches, began_with, answers, patience, heard
):
    """Without, the ranks would go on with the processor, and nobody would be told."""
    given = iter(answers)
    monkeypatch.setattr(life, "gpus", lambda: [{}] * next(given))
    monkeypatch.setattr(life, "GPU_RETRY", 0.01)
    it = object.__new__(supervisor._Supervisor)
    times = {"patience": patience, "ready_timeout": patience}
    it._spec = SimpleNamespace(gpus=began_with, node="laptop", **times)
    it._record, it._link, it._say = SimpleNamespace(launches=launches), Quiet(), print
    it._events = asyncio.Queue()
    asyncio.run(it._listen())
    event = it._events.get_nowait()
    if not launches or heard == "hello":
        assert event == "hello"
    else:
        assert (event.state, event.cause.node, event.cause.kind) == (heard, "laptop", "not_ready")
    assert it._events.empty()
