"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from tests.bench.paper import aim, spread

CASES = {
    "killed worker": "a worker's node is killed (-9)",
    "killed leader": "the leader's node is killed (-9)",
    "silent worker": "a worker's node falls silent (SIGSTOP)",
    "silent leader": "the leader's node falls silent (SIGSTOP)",
}

KILLED_WITHIN = 1.0
SILENT_WITHIN = 1.0
"""Seconds beyond the silence that counts as a loss."""

WAITED_WITHIN = 2.0


class Step(NamedTuple):
    """A step: when it was done (seconds since 1970), its number, and how many took part."""

    at: float
    number: int
    together: int


def figures_of(lost: float, before: Sequence[Step], on: Step) -> dict[str, float | None]:
    """Return the cost of losing a node: seconds of pause and repeated steps.

    `before` were on record when it was lost; `on` is the survivors' next step.
    """
    last = before[-21:]
    pauses = [after.at - step.at for step, after in pairwise(last)]
    return {
        "step_seconds": median(pauses),
        "seconds_until_on": on.at - lost,
        "steps_again": max(0, max(step.number for step in before) + 1 - on.number),
    }


def waited(steps: Sequence[Step], begun: float, back: Step) -> float:
    """Return the longest pause between two steps of the others while the lost one comes back.

    It was started at `begun`, and `back` is the first step of all; the two steps after it count.
    """
    times = [step.at for step in steps if step.at >= begun and step.number <= back.number + 2]
    return max(after - before for before, after in pairwise(times))


def _median(runs: Sequence[Mapping[str, Any]], name: str, never: str = "–", digits: int = 1) -> str:
    """Return the median of a figure, with the least and the most if there are several."""
    values = [run[name] for run in runs if run.get(name) is not None]
    if not values:
        return never
    several = f" ({spread(values, digits)})" if len(values) > 1 else ""
    return f"{median(values):.{digits}f}{several}"


def table(figures: Mapping[str, Any]) -> str:
    engines = {"Hearth": "hearth", f"torchft {figures['torchft']}": "torchft"}
    load = figures["machine_load"]
    lines = [
        f"CPU, gloo, three nodes on loopback, one rank each. Measured on {figures['date']} on "
        f"{figures['computer']}, of which other work wanted {load:.0f} when it began; "
        f"Hearth {figures['hearth']}, torch {figures['torch']}. {figures['work']} A stand-in of a "
        f"model that takes {figures['loads_for']:g} s to load. Both with the times they ship with. "
        f"A node is lost after step {figures['lost_after']}, and started again once the "
        "others have gone on without it. torchft's lighthouse is on the leader's node. Seconds, "
        "medians of n with the least and the most.",
        "",
        "| | | n | until the others' next step | from starting the lost one until a step of all "
        "| longest wait of the others meanwhile |",
        "|---|---|--:|--:|--:|--:|",
    ]
    never = f"never (not in {figures['patience']:g} s)"
    for case, words in CASES.items():
        for name, engine in engines.items():
            runs = figures["runs"][engine][case]
            lines.append(
                f"| {words} | {name} | {len(runs)} | {_median(runs, 'seconds_until_on', never)} | "
                f"{_median(runs, 'seconds_until_in')} | {_median(runs, 'seconds_waited')} |"
            )
    lines += [
        "",
        *_aims(figures),
    ]
    return "\n".join(lines)


def _aims(figures: Mapping[str, Any]) -> list[str]:
    """Return the lines on what Hearth's losses are to cost; medians count."""

    def worst(name: str, *cases: str) -> float:
        """Return the highest median of a figure over these cases."""
        return max(median(run[name] for run in figures["runs"]["hearth"][case]) for case in cases)

    killed = worst("seconds_until_on", "killed worker", "killed leader")
    silent = worst("seconds_until_on", "silent worker", "silent leader")
    again, rejoin = worst("steps_again", *CASES), worst("seconds_waited", *CASES)
    most = figures["silence"] + SILENT_WITHIN
    return [
        aim(
            f"Killed: the others' next step within {KILLED_WITHIN:g} s",
            killed <= KILLED_WITHIN,
            f"{killed:.1f} s",
        ),
        aim(
            f"Silent: within {most:g} s, the silence that counts as a loss and a second",
            silent <= most,
            f"{silent:.1f} s",
        ),
        aim("No step done again", again == 0, f"{again:.0f}"),
        aim(
            f"A return costs the others {WAITED_WITHIN:g} s at most",
            rejoin <= WAITED_WITHIN,
            f"{rejoin:.1f} s",
        ),
    ]
