"""A sign of life while a task takes long and nothing is printed. Pure but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from hearth.base.text import duration

SILENCE = 12.0
"""Seconds without output after which a line is due; people get nervous at 15."""


class Pulse:
    """The task under way, the nodes it still runs on, and the time since the last output."""

    def __init__(self, live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._silence = 1.0 if live else SILENCE
        self._clock = clock
        self._task, self._nodes = "", dict[str, None]()
        self._began = self._heard = clock()

    def begin(self, task: str) -> None:
        """Start to watch a task; with an empty name, watch none."""
        self._task, self._nodes = task, {}
        self._began = self._heard = self._clock()

    def enter(self, node: str) -> None:
        """Note that the task runs on a node."""
        self._nodes[node] = None

    def leave(self, node: str) -> None:
        """Note that it has ended there."""
        self._nodes.pop(node, None)

    def heard(self) -> None:
        """Note that something was printed."""
        self._heard = self._clock()

    def line(self) -> str | None:
        """Return the line that is due, None if there was output lately or no task is under way."""
        now = self._clock()
        if not self._task or now - self._began < SILENCE or now - self._heard < self._silence:
            return None
        nodes = ", ".join(list(self._nodes))  # a copy: another thread adds and removes
        return f"{self._task}: {duration(now - self._began)}{nodes and f', on {nodes}'} …"
