"""Messages on a wait, from a supervisor whose sender is a stand-in."""

from __future__ import annotations

import time

import pytest

from hearth.notify.event import Event
from hearth.notify.watch import PATIENCE
from hearth.supervise import notices
from hearth.supervise.notices import Notices
from hearth.supervise.record import RunRecord
from hearth.supervise.spec import Spec

NIGHT = 1.8e9
YEARS = 1e8


class StandInOutbox:
    """Keeps the events that it is to send."""

    def __init__(self, *_: object) -> None:
        self.sent: list[Event] = []

    def collect(self) -> None:
        """Nothing is on its way."""

    def send(self, event: Event) -> None:
        """Keep an event."""
        self.sent.append(event)


@pytest.fixture
def clocks(monkeypatch):
    """The times of the two clocks, that on the wall first."""
    now = [NIGHT, 1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "monotonic", lambda: now[1])
    return now


def test_a_clock_that_is_set_makes_no_wait_long(tmp_path, monkeypatch, clocks):
    monkeypatch.setattr(notices, "Outbox", StandInOutbox)
    nodes, addresses = ("desk", "laptop"), ("127.0.0.1", "127.0.0.2")
    spec = Spec(
        *("night", "desk", 0, nodes, addresses, 1, "python"),
        workspace=tmp_path,
        token="secret",
    )
    record = RunRecord.from_spec(spec, missing=["laptop"])
    watched = Notices(spec, record, print)
    outbox = watched._outbox
    watched.observe({"laptop"}, 3600.0)
    clocks[:] = NIGHT + YEARS, 1010.0
    watched.observe({"laptop"}, 3600.0)
    assert outbox.sent == []
    clocks[:] = NIGHT + YEARS + PATIENCE, 1010.0 + PATIENCE
    watched.observe({"laptop"}, 3600.0)
    (waiting,) = outbox.sent
    assert waiting.at - waiting.began == PATIENCE + 10
    assert waiting.ends == waiting.began + 3600
