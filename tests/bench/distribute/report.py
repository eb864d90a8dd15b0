"""From the seconds of each number of nodes to the table in docs/measurements.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from tests.bench.paper import met

MOST = 1.5
"""How many times the seconds of one copy all others may take together."""


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of docs/measurements.md for `figures`, as `__main__` records them."""
    one = _seconds(figures, "2", "transfer")
    lines = [
        f"Emulated: machines of the lab with links of {figures['link']}; a model of "
        f"{figures['megabytes']} MB, which one machine has. Measured on {figures['date']} on "
        f"{figures['computer']}; Hearth {figures['hearth']}. Seconds from the first question of a "
        "node until the model is proved and in its place on the last; medians of n, with the least "
        "and the most. The whole command also looks at the nodes before and after.",
        "",
        "| nodes in all | copies | n | seconds | | in times of one copy | MB/s into each node | "
        "whole command |",
        "|--:|--:|--:|--:|---|--:|--:|--:|",
    ]
    for count, runs in figures["seconds"].items():
        seconds = _seconds(figures, count, "transfer")
        each = [run["transfer"] for run in runs]
        lines.append(
            f"| {count} | {int(count) - 1} | {len(runs)} | {seconds:.1f} | {min(each):.1f} to "
            f"{max(each):.1f} | {seconds / one:.2f} | {figures['megabytes'] / seconds:.1f} | "
            f"{_seconds(figures, count, 'play'):.1f} s |"
        )
    return "\n".join([*lines, "", *aims(figures)])


def aims(figures: Mapping[str, Any]) -> list[str]:
    """Return a line for each aim, and whether these figures meet it."""
    one = _seconds(figures, "2", "transfer")
    lines = []
    for count in figures["seconds"]:
        if count != "2":
            times = _seconds(figures, count, "transfer") / one
            lines.append(
                f"- {count} nodes in at most {MOST} times the time of one copy: "
                f"{met(times <= MOST)} ({times:.2f})."
            )
    return lines


def _seconds(figures: Mapping[str, Any], count: str, which: str) -> float:
    """Return the median of the seconds of so many nodes."""
    return median(run[which] for run in figures["seconds"][count])
