"""The queue of a node: one file for each run that waits for its turn, written atomically.

Runs are served in one total order, the same on all nodes: by position, then by name. A run whose
start is in the future stands back for the others until then. One that has begun on another of its
nodes goes first: it holds that node, and the others cannot train there before it has ended.

An entry counts while its supervisor lives, which holds a lock of its own, or while its systemd unit
brings the supervisor back. One that was killed for good holds up no other run.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hearth.base.clock import when
from hearth.base.errors import LaunchError
from hearth.base.files import alone, read_object, write_whole
from hearth.base.locks import folder_of, held, is_in_queue
from hearth.base.places import QUEUE
from hearth.base.systemd import units_of
from hearth.supervisor.record import READERS, record_in
from hearth.supervisor.spec import Spec, record_file


@dataclass(frozen=True)
class QueueEntry:
    """A run in a node's queue.

    Attributes:
        position: lower ones come first; the same on all nodes of the run.
        at: its earliest start, with its zone; None for as soon as possible.
        submitted: the time when it was put into the queue (ISO 8601).
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
        """The sort key of runs."""
        return not self.begun, self.position, self.run

    def is_due(self, now: datetime) -> bool:
        """Return whether its start has come."""
        return self.at is None or now >= self.at


def ahead_of(own: QueueEntry, others: Iterable[QueueEntry], now: datetime) -> list[str]:
    """Return the runs in the queue that are served before `own`, in their order."""
    due = [entry for entry in others if entry.alive and entry.is_due(now)]
    return [
        entry.run for entry in sorted(due, key=lambda entry: entry.order) if _before(entry, own)
    ]


def _before(entry: QueueEntry, own: QueueEntry) -> bool:
    return entry.run != own.run and entry.order < own.order


def why_not_yet(own: QueueEntry, others: Iterable[QueueEntry], holder: str, now: datetime) -> str:
    """Return why it is not the turn of `own` yet, in words; '' if it is.

    `holder` is the run that has the node, '' if it is free. `now` is the time, in the zone for
    written times.
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


_OPEN = ("queued", "waiting", "running")


def enter_queue(spec: Spec) -> None:
    """Put the run of `spec` into the queue of this node, unless it is there already.

    Raises `LaunchError` if that cannot be written.
    """
    folder = spec.workspace / QUEUE
    path = folder / f"{spec.run}.json"
    try:
        folder.mkdir(exist_ok=True)
        with alone(folder):
            if read_object(path) is None:
                write_whole(path, json.dumps(dict(spec.queue), indent=1) + "\n", synced=True)
    except OSError as error:
        raise LaunchError(
            f"{spec.node}: {path} cannot be written: {error.strerror}; make it writable or set "
            "another workspace in the inventory"
        ) from error


def mark_begun(workspace: Path, run: str) -> None:
    """Note in the queue of this node that a run in it has begun on another node."""
    path = workspace / QUEUE / f"{run}.json"
    with suppress(OSError), alone(workspace / QUEUE):
        entry = read_object(path)
        if entry and not entry.get("begun"):
            write_whole(path, json.dumps(entry | {"begun": True}, indent=1) + "\n", synced=True)


def leave_queue(workspace: Path, run: str) -> None:
    """Take a run out of the queue of this node, if it is there."""
    with suppress(OSError), alone(workspace / QUEUE):
        for ending in ("json", "lock"):
            (workspace / QUEUE / f"{run}.{ending}").unlink(missing_ok=True)
        folder_of(workspace / QUEUE / f"{run}.lock").rmdir()


def read_queue(workspace: Path) -> list[QueueEntry]:
    """Return the runs in the queue of this node, in their order.

    Those whose supervisor is gone for good are not `alive`. A damaged file counts as no entry.
    """
    paths = sorted((workspace / QUEUE).glob("*.json"))
    carried = units_of(workspace) if paths else {}
    found = []
    for path in paths:
        run = path.stem
        up = is_in_queue(workspace, run)
        alive = up or (run in carried and _is_open(workspace, run))
        if entry := entry_from(run, read_object(path)):
            found.append(replace(entry, alive=alive, up=up))
    return sorted(found, key=lambda entry: entry.order)


def entry_from(run: str, given: Mapping[str, Any] | None) -> QueueEntry | None:
    """Return the entry that a file or a launch spec describes; None if it describes none."""
    if given is None:
        return None
    try:
        at = given.get("at")
        begins = datetime.fromisoformat(at) if at else None
        if begins and begins.tzinfo is None:
            return None
        position = float(given["position"])
        submitted, begun = str(given.get("submitted", "")), given.get("begun") is True
        return QueueEntry(run, position, begins, submitted, begun=begun)
    except (KeyError, TypeError, ValueError):
        return None


@contextmanager
def in_queue(workspace: Path, run: str) -> Iterator[None]:
    """Show for the block that the supervisor of a run lives, which waits for its turn.

    Raises `LaunchError` if another one does.
    """
    (workspace / QUEUE).mkdir(exist_ok=True)
    with held(workspace / QUEUE / f"{run}.lock", READERS) as ours:
        if not ours:
            raise LaunchError(
                f"{workspace}: run '{run}' waits in the queue here already: watch it, or remove it"
            )
        yield


def coming_back(workspace: Path) -> str:
    """Return a run that has begun here and whose supervisor systemd is about to bring back, or ''.

    After a restart of the machine such a run goes on before the queue does.
    """
    for run in sorted(units_of(workspace)):
        waits = (workspace / QUEUE / f"{run}.json").exists()
        if not waits and _is_open(workspace, run):
            return run
    return ""


def _is_open(workspace: Path, run: str) -> bool:
    return record_in(record_file(workspace, run)).get("state") in _OPEN
