"""The port at which rank 0's supervisor listens, when its machine is back from a restart."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from hearth.base.errors import LaunchError
from hearth.supervise import supervisor


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
    it._spec, it._last = SimpleNamespace(patience=20.0), last
    asyncio.run(it._open(hub))


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(supervisor, "RETRY", 0.01)


def test_a_port_that_is_taken_at_the_start_is_an_error():
    hub = Taken()
    with pytest.raises(LaunchError, match="taken"):
        listen(hub, last=None)
    assert hub.tried == 1


def test_after_a_restart_it_is_waited_for():
    hub = Taken()
    listen(hub, last={"generation": 1})
    assert hub.tried == 3
