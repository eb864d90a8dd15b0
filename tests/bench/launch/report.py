"""From raw figures to the table in docs/measurements.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from tests.bench.paper import met

AIMS = {"tasks": 30, "processes": 150, "interpreters_per_node": 3}
"""The most of each for a run of two steps on two nodes."""

TIMES = 1.5
"""Longest time until the first step, in times of that by hand."""


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of these figures."""
    counts = figures["counts"]
    lines = [
        f"Two ranks on loopback, a tiny model, everything cached. Measured on {figures['date']} on "
        f"{figures['computer']}; Hearth {figures['hearth']}. Seconds until the first step is on "
        "record, and until the command ends; by turns.",
        "",
        "| turn | by hand: first step | end | train.yml: first step | end | first step, in times |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    ratios = []
    for turn, (hand, play) in enumerate(zip(figures["hand"], figures["play"], strict=True), 1):
        ratios.append(play["first_step"] / hand["first_step"])
        lines.append(
            f"| {turn} | {hand['first_step']:.1f} | {hand['end']:.1f} | {play['first_step']:.1f} "
            f"| {play['end']:.1f} | {ratios[-1]:.2f} |"
        )
    ratio = median(ratios)
    lines += [
        "",
        f"- First step within {TIMES} times that by hand: {met(ratio <= TIMES)} ({ratio:.2f}, "
        "median).",
        *(
            f"- At most {most} {name.replace('_', ' ')}: {met(counts[name] <= most)} "
            f"({counts[name]:g})."
            for name, most in AIMS.items()
        ),
    ]
    return "\n".join(lines)
