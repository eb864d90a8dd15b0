"""From raw figures to the table in docs/measurements.md. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import met

PINGS = 100
RUNS = ("first", "second", "second_with_sum")
WORDS = {
    "first": "first run",
    "second": "second run",
    "second_with_sum": "second run with the all-reduce",
}


def median(costs: Sequence[Mapping[str, float]], what: str) -> float:
    """Return the median of `wall` or `cpu` over repeats."""
    return statistics.median(cost[what] for cost in costs)


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of docs/measurements.md for `figures`, as `__main__` records them."""
    lines = [
        f"Measured on {figures['date']} on {figures['computer']} with ansible-core "
        f"{figures['ansible']}; Hearth {figures['hearth']}. The machines of the lab share this "
        "computer's cores, so the time on the clock is theirs too. A ping is `ansible cluster -m "
        "ping` over the same machines in the same sitting. Medians of n.",
        "",
        "| machines | | n | seconds | of which controller CPU | in pings | a machine |",
        "|--:|---|--:|--:|--:|--:|--:|",
    ]
    for sitting in figures["sittings"]:
        count, ping = sitting["machines"], median(sitting["ping"], "wall")
        rows = [(WORDS[run], sitting[run]) for run in RUNS if sitting.get(run)]
        for words, costs in [*rows, ("ping", sitting["ping"])]:
            wall, cpu = median(costs, "wall"), median(costs, "cpu")
            lines.append(
                f"| {count} | {words} | {len(costs)} | {wall:.1f} | {cpu:.1f} | {wall / ping:.0f} "
                f"| {wall / count:.2f} s |"
            )
    return "\n".join([*lines, "", *aims(figures["sittings"])])


def aims(sittings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each aim, and whether these figures meet it."""
    lines = []
    each = {}
    for sitting in sittings:
        count = sitting["machines"]
        second, ping = median(sitting["second"], "wall"), median(sitting["ping"], "wall")
        each[count] = second / count
        lines.append(
            f"- A second run over {count} machines, without the all-reduce, within {PINGS} pings: "
            f"{met(second <= PINGS * ping)} ({second / ping:.0f})."
        )
    if len(each) > 1:
        few, many = min(each), max(each)
        lines.append(
            f"- The cost a machine at {many} no higher than at {few}: "
            f"{met(each[many] <= each[few])} ({each[many]:.2f} s and {each[few]:.2f} s)."
        )
    return lines
