"""The turn of each run that waits in a node's queue, and why it has not come yet. Pure.

Runs are served in one total order, the same on all nodes: by position, then by name. A run whose
start lies in the future stands back for the others until then. One that has begun on another of its
nodes goes first: it holds that node, and the others cannot train there before it has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from hearth.base.clock import when


@dataclass(frozen=True)
class Entry:
    """A run in a node's queue.

    Attributes:
        position: lower ones come first; the same on all nodes of the run.
        at: the time before which it does not start, with its zone; None for as soon as possible.
        submitted: the time at which it was put into the queue (ISO 8601).
        alive: whether a supervisor waits here for its turn, or comes back to do so.
        begun: whether the run has begun on another node.
        up: whether its supervisor is up now.
    """

    run: str
    position: float
    at: datetime | None = None
    submitted: str = ""
    alive: bool = True
    begun: bool = False
    up: bool = True

    @property
    def order(self) -> tuple[bool, float, str]:
        """The key by which runs are served."""
        return not self.begun, self.position, self.run

    def is_due(self, now: datetime) -> bool:
        """Return whether its start has come."""
        return self.at is None or now >= self.at


def ahead_of(own: Entry, others: Iterable[Entry], now: datetime) -> list[str]:
    """Return the runs in the queue that are served before `own`, in their order."""
    due = [entry for entry in others if entry.alive and entry.is_due(now)]
    return [
        entry.run for entry in sorted(due, key=lambda entry: entry.order) if _before(entry, own)
    ]


def _before(entry: Entry, own: Entry) -> bool:
    return entry.run != own.run and entry.order < own.order


def why_not_yet(own: Entry, others: Iterable[Entry], holder: str, now: datetime) -> str:
    """Return why it is not the turn of `own` yet, in words; '' if it is.

    `holder` is the run that has the node, '' if it is free. `now` is the time, in the zone in which
    times are written.
    """
    if own.at and not own.is_due(now):
        return f"starts at {when(own.at, now)}"
    ahead = [run for run in ahead_of(own, others, now) if run != holder]
    if holder and holder != own.run:
        ahead.insert(0, holder)
        place = len(ahead)
    else:
        place = len(ahead) + 1
    return f"waits behind {ahead[-1]}, {ordinal(place)} in the queue" if ahead else ""


def removal(run: str, hearth: str) -> str:
    """Return advice on a run that keeps its place and may never come back."""
    return (
        f"no supervisor of {run} has come back here: if none can, remove the run with "
        f"{hearth} runs --delete {run} --yes"
    )


def ordinal(number: int) -> str:
    """Return a number as a place: 1st, 2nd, 3rd and so on."""
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
