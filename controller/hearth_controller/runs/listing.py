"""Tables of runs, of their queue and of lending; two runs side by side; the removal of one. Pure.

All nodes serve their runs in one order (`hearth.supervisor`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from hearth.base.errors import LaunchError, did_you_mean
from hearth.base.text import NOT_KNOWN, aligned, byte_count, duration, fitted, on_off, plain
from hearth.lend.choice import ON, RETURNS
from hearth.supervisor.queue import ordinal
from hearth_controller.runs.energy import kwh_of, significant
from hearth_controller.runs.observed import ObservedRun

_COLUMNS = ("run", "state", "step", "loss", "perplexity", "model", "begun", "took", "nodes")
# The name of a run and the run that it resumes do not affect training.
_NO_DIFFERENCE = frozenset({"run", "resume"})


def listing(runs: Sequence[ObservedRun], columns: int) -> list[str]:
    """Return a table with one line per run, split into several if `columns` are too few."""
    if not runs:
        return ["there is no run yet"]
    return fitted([_COLUMNS, *(list(cells(run).values()) for run in runs)], columns)


def local_time(text: str) -> str:
    """Convert an ISO 8601 time to this computer's local time."""
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return NOT_KNOWN


def progress(step: int, steps: int | None) -> str:
    """Return the number of completed steps and the total, such as `3 of 10`."""
    return f"{step} of {steps}" if steps else NOT_KNOWN


def perplexities(both: tuple[float | None, float | None]) -> str:
    """Return the known held-out perplexities before and after training."""
    before, after = (NOT_KNOWN if value is None else f"{value:.2f}" for value in both)
    return NOT_KNOWN if before == after == NOT_KNOWN else f"{before} → {after}"


def time_taken(elapsed: float | None, launched: float | None) -> str:
    """Return the time of a run in all and, if it was launched again, of its launches together."""
    if elapsed is None or launched is None:
        return NOT_KNOWN
    whole, training = duration(elapsed), duration(launched)
    return whole if whole == training else f"{whole} ({training} of it training)"


def number(value: float | None, digits: int) -> str:
    """Return a number with `digits` decimal places."""
    return NOT_KNOWN if value is None else f"{value:.{digits}f}"


def removal(run: ObservedRun) -> list[str]:
    """Return the files of a run on each node and their sizes."""
    lines = []
    for node, files in run.files.items():
        lines.append(f"{node}: {byte_count(sum(files.values()))}")
        lines += [f"    {path}  {byte_count(size)}" for path, size in files.items()]
    return lines


def removal_objection(run: ObservedRun, silent: Sequence[str]) -> str:
    """Return the reason why a run must not be removed, or ''; `silent` nodes do not answer.

    A run that waits for its turn on all of its nodes may be: it has begun nothing.
    """
    if run.alive and not (run.state == "queued" and run.turns):
        return f"{run.name} is under way: stop it first: hearth stop {run.name}"
    hidden = [node for node in run.parts if node in silent]
    if hidden:
        return (
            f"{', '.join(hidden)} took part in {run.name} and does not answer: it may "
            "still work on it; switch it on, or take it out of the inventory"
        )
    return ""


def cells(run: ObservedRun, digits: int = 3) -> dict[str, str]:
    """Return the results of a run by column, the loss with `digits` decimal places."""
    return {
        "run": run.name,
        "state": run.state,
        "step": progress(run.story.step, run.story.steps),
        "loss": number(run.story.loss, digits),
        "perplexity": perplexities(run.story.perplexity),
        "model": run.model or run.program or NOT_KNOWN,
        "begun": local_time(run.begun),
        "took": time_taken(run.elapsed, run.seconds),
        "nodes": ", ".join(run.parts),
    }


def compare(one: ObservedRun, other: ObservedRun) -> list[str]:
    """Return the lines of a table with one column per run.

    Raises:
        LaunchError: the settings of one of them are not known.
    """
    first, second = (cells(run, digits=4) for run in (one, other))
    results = [(name if name != "run" else "", first[name], second[name]) for name in first]
    starts = [str((run.run and run.run.start) or NOT_KNOWN) for run in (one, other)]
    if starts != [NOT_KNOWN, NOT_KNOWN]:
        results.append(("on top of", *starts))
    if one.joules or other.joules:
        results.append(("energy", _energy(one), _energy(other)))
    settings = differing(one, other)
    differences = (
        ["settings that differ:", *aligned(settings)] if settings else ["no setting differs"]
    )
    return [line.rstrip() for line in [*aligned(results), "", *differences]]


def differing(one: ObservedRun, other: ObservedRun) -> list[tuple[str, str, str]]:
    """Return the settings that two runs differ in: name and both values as one would type them.

    Raises:
        LaunchError: the settings of one of them are not known.
    """
    both = []
    for run in (one, other):
        if run.settings is None:
            raise LaunchError(
                f"the settings of {run.name} are not known: no node has a run.yml of it that this "
                "version of Hearth can read"
            )
        both.append(run.settings)
    first, second = both
    # A script run and a model run share no settings; a missing setting counts as None.
    return [
        (name, _typed(first.get(name)), _typed(second.get(name)))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name) and name not in _NO_DIFFERENCE
    ]


def _energy(run: ObservedRun) -> str:
    """Return the energy that a run has used, as far as it is measured."""
    return NOT_KNOWN if run.joules is None else f"{significant(kwh_of(run.joules))} kWh"


def _typed(value: Any) -> str:
    if isinstance(value, list):
        return ":".join(map(str, value))
    if isinstance(value, bool):
        return on_off(value)
    return NOT_KNOWN if value is None else str(value)


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
    """Return the position that moves a run to a place in the queue, 1 for the first.

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


_LEAVES = "leaves after its step"


def lending_lines(answers: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Return the table's lines, from each node's facts; None for a node that did not answer.

    A node with findings has no facts, and no line.
    """
    rows = [["node", "lends", "until", "run", ""]]
    for name, facts in answers.items():
        if facts is None:
            rows.append([name, NOT_KNOWN, NOT_KNOWN, NOT_KNOWN, "not answered"])
        elif facts:
            until = facts["until"] if facts["word"] != "auto" else None
            rows.append([name, facts["word"], until or NOT_KNOWN, *_of_run(facts)])
    return [line.rstrip() for line in aligned(rows)] if len(rows) > 1 else []


def _of_run(facts: Mapping[str, Any]) -> Sequence[str]:
    """Return the name of a node's run, and a clause on whether it has the machine."""
    run, since = facts["run"], f" since {facts['since']}" if facts["since"] else ""
    if facts["trouble"] and not run:
        return NOT_KNOWN, plain(facts["trouble"])
    if not run:
        return NOT_KNOWN, "no run is under way"
    if facts["away"] and facts["word"] == ON:  # the reason is that of a moment ago
        return run, f"away{since}; {RETURNS}"
    if facts["away"]:
        return run, f"away{since}: {plain(facts['away'])}"
    if facts["word"] != "off":
        return run, f"has the machine{since}"
    if not facts["lends"]:
        return run, "stays to its end: it was started without lending (`hearth stop` ends it)"
    return run, _LEAVES
