"""The queue of runs over all nodes: its table, and a run's new place in it. Pure.

All nodes serve their runs in one order (`hearth.supervisor.queue`).
"""

from __future__ import annotations

from collections.abc import Sequence

from hearth.base.errors import LaunchError, did_you_mean
from hearth.base.text import NOT_KNOWN, aligned
from hearth.supervisor.queue import ordinal
from hearth_controller.runs.listing import local_time
from hearth_controller.runs.observed import ObservedRun


def in_queue(runs: Sequence[ObservedRun]) -> list[ObservedRun]:
    """Return the runs that wait for their turn on any node, in the order of the queue.

    A run whose turn has come on some of its nodes waits for the others, and can still be moved.
    """
    waiting = [run for run in runs if run.alive and run.turns]
    return sorted(waiting, key=lambda run: run.place)


def queue_table(runs: Sequence[ObservedRun]) -> list[str]:
    """Return the lines about the queue; none if no run waits."""
    rows = [("queue", "run", "starts", "why", "nodes")]
    for place, run in enumerate(in_queue(runs), 1):
        starts = local_time(run.starts_at) if run.starts_at else "in its turn"
        rows.append((ordinal(place), run.name, starts, run.why or NOT_KNOWN, ", ".join(run.parts)))
    return [line.rstrip() for line in aligned(rows)] if len(rows) > 1 else []


def new_position(runs: Sequence[ObservedRun], name: str, place: str) -> float:
    """Return the position with which a run comes to a place in the queue, 1 for the first.

    Raises `LaunchError` if it does not wait, a node of it does not answer, or there is no place.
    """
    queue = in_queue(runs)
    names = [run.name for run in queue]
    if name not in names:
        there = f"there are {', '.join(names)}" if names else "the queue is empty"
        raise LaunchError(
            f"-e move: no run {name!r} waits for its turn{did_you_mean(name, names)}; {there}"
        )
    if not (place.isdecimal() and 1 <= int(place) <= len(queue)):
        raise LaunchError(
            f"-e place: {place or 'nothing'!r} cannot be used; a place in the queue is wanted, "
            f"1 to {len(queue)}"
        )
    run = queue.pop(names.index(name))
    if away := [node for node, part in run.parts.items() if part.vanished]:
        raise LaunchError(
            f"-e move: {', '.join(away)} of {name} does not answer, and a run needs the same place "
            "on all of its nodes; switch it on, then move the run"
        )
    before = [each.place[0] for each in queue[: int(place) - 1]]
    after = [each.place[0] for each in queue[int(place) - 1 :]]
    if not before or not after:
        return after[0] - 1 if after else before[-1] + 1 if before else run.place[0]
    between = (before[-1] + after[0]) / 2
    if not before[-1] < between < after[0]:
        raise LaunchError(
            f"-e place: there is no room between the runs at {int(place) - 1} and {int(place)}, "
            "which have the same position; move one of them first"
        )
    return between
