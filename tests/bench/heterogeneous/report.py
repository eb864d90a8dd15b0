"""From raw figures to the table in docs/benchmarks.md. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import met

OF_THE_SUM = 0.95
OF_EQUAL_SPLIT = 2.0
OF_EQUAL_NODES = 0.97
PREDICTED_WITHIN = 0.10


def median(runs: Sequence[Mapping[str, Any]], what: str = "tokens_per_second") -> float:
    """Return the median of a figure over repeats."""
    return statistics.median(run[what] for run in runs)


def spread(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the least and the most tokens/s over repeats."""
    speeds = [run["tokens_per_second"] for run in runs]
    return f"{min(speeds):.0f} to {max(speeds):.0f}"


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of docs/benchmarks.md for `figures`, as `__main__` records them."""
    lines = [
        f"Emulated: machines of the lab with a share of a core each, CPU, gloo, links of 1 Gbit/s. "
        f"Measured on {figures['date']} on {figures['computer']}; Hearth {figures['hearth']}. "
        f"{figures['model']}. Tokens/s of the steps after the first {figures['skipped']}; medians "
        "of n, with the least and the most.",
    ]
    for sitting in figures["sittings"]:
        alone = sitting["alone"]
        total = sum(median(runs) for runs in alone.values())
        shares = ", ".join(f"{node} {share}" for node, share in sitting["shares"].items())
        lines += [
            "",
            f"Shares of a core: {shares}; {sitting['global_batch']} rows a step.",
            "",
            "| | n | tokens/s | | of the sum of the nodes alone |",
            "|---|--:|--:|---|--:|",
        ]
        rows = [(f"{node} alone", runs) for node, runs in alone.items()]
        rows += [(words, sitting[how]) for how, words in _WORDS.items() if sitting.get(how)]
        for words, runs in rows:
            speed = median(runs)
            lines.append(
                f"| {words} | {len(runs)} | {speed:.0f} | {spread(runs)} | {speed / total:.2f} |"
            )
    lines += [
        "",
        "A tutorial's script is `tests/bench/heterogeneous/tutorial.py`: DistributedDataParallel, "
        f"the same rows for each rank, {figures['at_once']} at once, and an exchange after each of "
        "these micro-batches. Its rows need no padding here.",
    ]
    return "\n".join([*lines, "", *aims(figures["sittings"])])


_WORDS = {
    "equal": "all, equal split",
    "by_speed": "all, split by speed",
    "tutorial": "all, a tutorial's script",
}


def aims(sittings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each aim, and whether these figures meet it."""
    lines = []
    for sitting in sittings:
        ours = median(sitting["by_speed"])
        part = ours / sum(median(runs) for runs in sitting["alone"].values())
        if len(set(sitting["shares"].values())) == 1:
            lines.append(
                f"- On equal nodes at least {OF_EQUAL_NODES} of the sum: "
                f"{met(part >= OF_EQUAL_NODES)} ({part:.3f})."
            )
            continue
        times = ours / median(sitting["equal"])
        predicted = median(sitting["by_speed"], "predicted_tokens_per_second")
        lines += [
            f"- At least {OF_THE_SUM} of the sum: {met(part >= OF_THE_SUM)} ({part:.3f}).",
            f"- At least {OF_EQUAL_SPLIT} times the equal split: "
            f"{met(times >= OF_EQUAL_SPLIT)} ({times:.2f}).",
            f"- Predicted within {PREDICTED_WITHIN:.0%} of what happens: "
            f"{met(abs(predicted / ours - 1) <= PREDICTED_WITHIN)} ({predicted / ours - 1:+.1%}).",
        ]
    return [line for line in [*lines, _exchange(sittings)] if line]


def _exchange(sittings: Sequence[Mapping[str, Any]]) -> str:
    """Return how much of a step the exchange takes: the wait of the rank that waits least."""
    steps = [step for sitting in sittings for run in sitting["by_speed"] for step in run["steps"]]
    if not steps:
        return ""
    waits = [min(step["wait_seconds_by_rank"]) for step in steps]
    parts = [
        wait / (wait + max(step["compute_seconds_by_rank"]))
        for wait, step in zip(waits, steps, strict=True)
    ]
    return (
        f"- The exchange takes {statistics.median(waits):.3f} s of a step split by speed, "
        f"{statistics.median(parts):.1%} of it: more could not be hidden behind the backward pass."
    )
