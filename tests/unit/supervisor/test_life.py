"""A supervisor that goes back to the queue; one that finds its port or its GPU gone later."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from hearth.base.errors import LaunchError
from hearth.supervisor import life
from hearth.supervisor.life import NodeSupervisor


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
    it = object.__new__(NodeSupervisor)
    it._record = SimpleNamespace(state=state, launches=launches)
    it._yields, it._interrupted = False, interrupted
    assert it._heeds(life.Interrupted("moved comes first", yields=True)) == ends
    assert it._yields == ends


class Taken:
    """A stand-in of the mesh whose port is free from the third time on."""

    def __init__(self):
        self.tried = 0

    async def open(self):
        self.tried += 1
        if self.tried < 3:
            raise LaunchError("the port is taken")


def listen(mesh, last):
    """Have a supervisor listen that left this record, or none, before it came."""
    it = object.__new__(NodeSupervisor)
    it._spec, it._last = SimpleNamespace(patience=20.0, queue={}), last
    asyncio.run(it._listen_at(mesh.open))


def test_a_port_that_is_taken_is_an_error_at_the_start_and_waited_for_after_a_restart(monkeypatch):
    monkeypatch.setattr(life, "RETRY", 0.01)
    mesh = Taken()
    with pytest.raises(LaunchError):
        listen(mesh, last=None)
    assert mesh.tried == 1
    listen(mesh := Taken(), last={"generation": 1})
    assert mesh.tried == 3


@pytest.mark.parametrize(
    ("began_with", "answers", "patience", "there"),
    [
        (0, [], 20.0, True),
        (1, [1], 20.0, True),
        (2, [0, 1, 2], 20.0, True),
        (2, [1, 1], 0.0, False),
    ],
)
def test_a_node_takes_part_again_once_its_gpus_answer(
    monkeypatch, began_with, answers, patience, there
):
    """Without, the ranks would go on with the processor, in silence."""
    given = iter(answers)
    monkeypatch.setattr(life, "gpus", lambda: [{}] * next(given))
    monkeypatch.setattr(life, "GPU_RETRY", 0.01)
    it = object.__new__(NodeSupervisor)
    times = {"patience": patience, "ready_timeout": patience}
    it._spec = SimpleNamespace(gpus=began_with, node="laptop", **times)
    it._record, it._say = SimpleNamespace(launches=[{"generation": 1}]), print
    it._events = asyncio.Queue()
    assert asyncio.run(it._gpus_answer()) == there
    if not there:
        outcome = it._events.get_nowait()
        assert (outcome.state, outcome.cause.node) == ("failed", "laptop")
        assert outcome.cause.kind == "not_ready"
    assert it._events.empty()
