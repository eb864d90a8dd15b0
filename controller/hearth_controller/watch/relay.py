"""Events that a node's follower sends to the program that started its play.

`hearth watch` and `hearth status --serve` play attach.yml with the address of a socket in the
environment. Each follower connects to it and writes its events as JSON lines, an object each:

    {"node": "desk", "run": "evening"}      first of all
    {"change": {…}}                         a change of `hearth.record.stream`, {} as a sign of life
    {"progress": "step 3/60 · …"}           this follower draws the run; the line of attach.yml
    {"outcome": {…}}                        how the run ended here, last of all
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from hearth_controller.watch.node_stream import NodeStream

VARIABLE = "HEARTH_FOLLOW_SOCKET"
"""The environment variable with the path of the socket."""


class EventRelay:
    """The connection of one follower; it is a screen (`hearth_controller.base.screen`), too.

    Permanent lines are not sent, since the changes repeat them. A reader that is gone ends the
    follower by an `OSError`, and so the play that it began.
    """

    def __init__(self, address: str, node: str, run: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)
        self._send({"node": node, "run": run})

    def progress(self, text: str, tenth: int = 0) -> None:
        """Send the progress of the run, which this follower draws."""
        self._send({"progress": text})

    def still(self) -> None:
        """Leave a sign of life out: the program that listens draws its own."""

    def line(self, text: str) -> None:
        """Leave a line out."""

    def end(self) -> None:
        """Leave the progress as it is."""

    def change(self, change: Mapping[str, Any]) -> None:
        """Send a change of the run on this node."""
        self._send({"change": change})

    def outcome(self, outcome: Mapping[str, Any]) -> None:
        """Send how the run ended on this node."""
        self._send({"outcome": outcome})

    def _send(self, event: Mapping[str, Any]) -> None:
        self._socket.sendall(f"{json.dumps(event)}\n".encode())


class RelayedStream(NodeStream):
    """A node's stream whose changes go to a relay, too."""

    def __init__(self, relay: EventRelay, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._relay = relay

    def read(self) -> list[dict[str, Any]]:
        """Return the changes that arrive within a second, as `NodeStream` does."""
        changes = super().read()
        for change in changes:
            self._relay.change(change)
        return changes


def relay_of(node: str, run: str) -> EventRelay | None:
    """Return the relay that the environment asks for, or None."""
    address = os.environ.get(VARIABLE)
    return EventRelay(address, node, run) if address else None
