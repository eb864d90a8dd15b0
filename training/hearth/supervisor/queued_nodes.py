"""The nodes of a run on which it waits for its turn, as this node has heard of them."""

from __future__ import annotations

from collections.abc import Callable

from hearth.base.clock import boot_clock

FRESH = 30.0
"""Seconds for which the word of a node counts; it is heard every five at least."""


class QueuedNodes:
    """The nodes that have said so. `say` takes lines for the log.

    Attributes:
        heard: by node, when it said so last, in seconds of `boot_clock`.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.heard: dict[str, float] = {}
        self._say = say
        self._why: dict[str, str] = {}

    def hear(self, node: str, why: str) -> None:
        """Note that the run waits for its turn on a node, and log why when that changes."""
        self.heard[node] = boot_clock()
        if self._why.get(node) != why:
            self._why[node] = why
            self._say(f"{node} {why} there")

    def now(self) -> set[str]:
        """Return the nodes on which the run waits for its turn now."""
        return {node for node, at in self.heard.items() if boot_clock() - at < FRESH}
