"""The log of a run on one node: its last lines, and new ones until the run has ended there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hearth.base.text import plain
from hearth.supervisor.cause import ENDS
from hearth_controller.watch.node_stream import NodeStream

_QUIET = 2.0
"""Seconds without a new line and without a living supervisor after which the log is complete."""

_PATIENCE = 180.0
"""Seconds without an answer after which a node is no longer followed."""


def shown(line: str) -> str:
    """Return a line of a log without control codes; of a progress bar only its last state."""
    return plain(line.rstrip("\r").rpartition("\r")[2]).expandtabs().rstrip()


class Log:
    """The log of a run, as `stream` reports it; `stream` begins with its last lines.

    Raises `ConnectionError` while reading if the node does not answer.
    """

    def __init__(self, stream: NodeStream) -> None:
        self._stream, self._half = stream, ""
        self._over, self._changed = False, time.monotonic()

    @property
    def complete(self) -> bool:
        """Whether the run has ended here and nothing more is expected."""
        return self._over and self._stream.answered - self._changed > _QUIET

    def last_lines(self) -> list[str] | None:
        """Return the last lines, None if there is no log."""
        text, behind = "", True
        while behind:
            for change in self._changes(patience=0):
                if "log" in change and change["log"] is None:
                    return None
                if log := change.get("log"):
                    text, behind = text + log["text"], log["behind"]
        return [shown(line) for line in text.splitlines()]

    def new_lines(self) -> list[str]:
        """Return the whole lines that were added; half a line waits."""
        found = []
        for change in self._changes(_PATIENCE):
            if log := change.get("log"):
                self._half = "" if log["anew"] else self._half
                *whole, self._half = (self._half + log["text"]).split("\n")
                found += [shown(line) for line in whole]
        return found

    def _changes(self, patience: float) -> list[Mapping[str, Any]]:
        changes = self._stream.read()
        if self._stream.error and self._stream.silent > patience:
            raise ConnectionError(self._stream.error)
        for change in changes:
            if "record" in change:
                record = change["record"]
                self._over = not record or record["state"] in ENDS or not change["alive"]
            if "record" in change or change.get("log"):
                self._changed = time.monotonic()
        return changes
