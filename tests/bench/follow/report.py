"""From raw figures to the table in docs/measurements.md. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import aim, measured

OF_THE_SUM = 0.93
WITHIN = 5
"""Steps that the split has to follow in."""


def total(alone: Mapping[str, Mapping[str, Any]]) -> float:
    """Return the tokens/s of all nodes, each for itself, added up."""
    return sum(its["tokens_per_second"] for its in alone.values())


def before_and_after(run: Mapping[str, Any], skipped: int) -> tuple[list[float], list[float]]:
    """Return tokens/s of the steps before one machine was halved, and of those wholly after it.

    The step under way when it was halved is in neither. `skipped` steps are not on record.
    """
    speeds = [step["tokens_per_second"] for step in run["steps"]]
    at = run["halved_during"] - 1 - skipped
    return speeds[:at], speeds[at + 1 :]


def steps_until(speeds: Sequence[float], wanted: float) -> int | None:
    """Return the number of steps before the first as fast as `wanted`; None if no step was."""
    return next((taken for taken, each in enumerate(speeds) if each >= wanted), None)


def table(figures: Mapping[str, Any]) -> str:
    shares = ", ".join(f"{node} {share}" for node, share in figures["shares"].items())
    lines = [
        "Emulated: machines of the lab with a share of a core each, CPU, gloo, links of 1 Gbit/s. "
        f"{measured(figures)} Shares: {shares}; {figures['victim']} is halved while they train. "
        "The sums are of the nodes that train for themselves at the same time, right before and "
        "after. Medians of steps; a step under way when the machine is halved is not counted.",
        "",
        "| run | sum, tokens/s | new sum | before, of the sum | "
        f"first {WITHIN} steps after, of the new sum | later | "
        f"steps until {OF_THE_SUM} of the new sum |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    reached = []
    turns = zip(figures["together"], figures["alone"], figures["halved"], strict=True)
    for number, (run, alone, halved) in enumerate(turns, 1):
        before, after = before_and_after(run, figures["skipped"])
        full, new = total(alone), total(halved)
        reached.append(statistics.median(after[WITHIN:]) / new)
        taken = steps_until(after, OF_THE_SUM * new)
        lines.append(
            f"| {number} | {full:.0f} | {new:.0f} | {statistics.median(before) / full:.2f} "
            f"| {statistics.median(after[:WITHIN]) / new:.2f} | {reached[-1]:.2f} "
            f"| {'never' if taken is None else taken} |"
        )
    part = statistics.median(reached)
    words = f"Back at {OF_THE_SUM} of the new sum within {WITHIN} steps"
    return "\n".join([*lines, "", aim(words, part >= OF_THE_SUM, f"{part:.3f}")])
