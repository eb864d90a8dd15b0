"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import aim, measured

LENGTH = 2048
OF_PADDED = 3.0
WAYS = {
    "packed": f"packed to {LENGTH}",
    "packed to half": f"packed to {LENGTH // 2}",
    "padded to the longest": "padded to the longest of 8",
    "padded": f"padded to {LENGTH}",
}
"""How examples become rows, and the words for it."""


def speed(costs: Sequence[Mapping[str, float]]) -> float:
    return statistics.median(cost["tokens"] / cost["seconds"] for cost in costs)


def filled(costs: Sequence[Mapping[str, float]]) -> float:
    """Return the part of all positions that is no padding."""
    return sum(cost["tokens"] for cost in costs) / sum(cost["positions"] for cost in costs)


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        f"CPU, one process, one thread, float32. {measured(figures)} The first "
        f"{figures['layers']} layers of {figures['model']}, LoRA. Tokens that are no padding, a "
        "second of processor time, forward and backward; medians of several runs.",
        "",
        "| data | rows | tokens/s | no padding | against padded to 2048 |",
        "|---|---|--:|--:|--:|",
    ]
    aims = []
    for name, ways in figures["sets"].items():
        slowest = speed(ways["padded"])
        for way, costs in ways.items():
            lines.append(
                f"| {name} | {WAYS[way]} | {speed(costs):.0f} | {filled(costs):.0%} "
                f"| {speed(costs) / slowest:.1f} |"
            )
        times = speed(ways["packed"]) / slowest
        of_longest = speed(ways["packed"]) / speed(ways["padded to the longest"])
        words = f"{name}: at least {OF_PADDED:.0f} times padding to {LENGTH}"
        told = aim(words, times >= OF_PADDED, f"{times:.1f}").removesuffix(".")
        aims.append(f"{told}; {of_longest:.2f} times padding to the longest of 8.")
    return "\n".join([*lines, "", *aims])
