"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import aim, measured, median_of, spread

OF_THE_SUM = 0.95
OF_EQUAL_SPLIT = 2.0
OF_EQUAL_NODES = 0.97
PREDICTED_WITHIN = 0.10


def overall(steps: Sequence[Mapping[str, Any]]) -> float:
    """Return the tokens/s over some steps of a run together."""
    seconds = sum(step["tokens"] / step["tokens_per_second"] for step in steps)
    return sum(step["tokens"] for step in steps) / seconds


def of_the_sum(
    runs: Sequence[Mapping[str, Any]], alone: Mapping[str, Sequence[Mapping[str, Any]]]
) -> float:
    """Return the joint speed as a fraction of the summed speeds alone: the median over the turns.

    In each turn it is set against the nodes alone in the same turn, since a computer
    that others use too is now faster, now slower.
    """
    turns = zip(*alone.values(), strict=True)
    sums = [sum(run["tokens_per_second"] for run in turn) for turn in turns]
    found = zip(runs, sums, strict=False)  # not every kind of run has a place in every turn
    return statistics.median(run["tokens_per_second"] / total for run, total in found)


def speeds_of(
    words: str,
    runs: Sequence[Mapping[str, Any]],
    alone: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """Return a kind of run's cells: the words for it, n, tokens/s, their spread, of the sum."""
    speeds = spread([run["tokens_per_second"] for run in runs])
    part = of_the_sum(runs, alone)
    return f"| {words} | {len(runs)} | {median_of(runs):.0f} | {speeds} | {part:.2f} |"


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        "Emulated: machines of the lab with a share of a core each, CPU, gloo, links of 1 Gbit/s. "
        f"{figures['model']}. Tokens/s of the steps after the first {figures['skipped']}; medians "
        "of n, with the least and the most. The nodes alone trained at the same time as each "
        "other, between the runs together.",
    ]
    for sitting in figures["sittings"]:
        alone = sitting["alone"]
        shares = ", ".join(f"{node} {share}" for node, share in sitting["shares"].items())
        lines += [
            "",
            f"Shares of a core: {shares}; {sitting['global_batch']} rows a step. "
            f"{measured(sitting)}",
            "",
            "| | n | tokens/s | | of the sum of the nodes alone |",
            "|---|--:|--:|---|--:|",
        ]
        rows = [(f"{node} alone", runs) for node, runs in alone.items()]
        rows += [(words, sitting[how]) for how, words in _WORDS.items() if sitting.get(how)]
        lines += [speeds_of(words, runs, alone) for words, runs in rows]
    lines += [
        "",
        "A tutorial's script is `tests/bench/heterogeneous/tutorial.py`: DistributedDataParallel "
        f"with the same rows for each rank, {figures['at_once']} at once.",
    ]
    return "\n".join([*lines, "", *aims(figures["sittings"])])


_WORDS = {
    "equal": "all, equal split",
    "by_speed": "all, split by speed",
    "tutorial": "all, a tutorial's script",
}


def aims(sittings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each aim, and whether these figures meet it, and where the rest went."""
    lines = []
    for sitting in sittings:
        ours, alone = sitting["by_speed"], sitting["alone"]
        part = of_the_sum(ours, alone)
        if len(set(sitting["shares"].values())) == 1:
            words = f"On equal nodes at least {OF_EQUAL_NODES} of the sum"
            told = aim(words, part >= OF_EQUAL_NODES, f"{part:.3f}")
            lines.append(f"{told} {_whereabouts(sitting)}")
            continue
        times = statistics.median(
            run["tokens_per_second"] / equal["tokens_per_second"]
            for run, equal in zip(ours, sitting["equal"], strict=True)
        )
        off = statistics.median(
            run["predicted_tokens_per_second"] / run["tokens_per_second"] - 1 for run in ours
        )
        told = aim(f"At least {OF_THE_SUM} of the sum", part >= OF_THE_SUM, f"{part:.3f}")
        equal_split = f"At least {OF_EQUAL_SPLIT} times the equal split"
        predicted = f"Predicted within {PREDICTED_WITHIN:.0%} of what happens"
        lines += [
            f"{told} {_whereabouts(sitting)}",
            aim(equal_split, times >= OF_EQUAL_SPLIT, f"{times:.2f}"),
            aim(predicted, abs(off) <= PREDICTED_WITHIN, f"{off:+.1%}"),
        ]
    return [*lines, _exchange(sittings)]


def _whereabouts(sitting: Mapping[str, Any]) -> str:
    """Describe the losses of a joint run: in computing, and by waiting for the slowest rank."""
    computing, kept = [], []
    for turn, run in enumerate(sitting["by_speed"]):
        alone = sum(runs[turn]["tokens_per_second"] for runs in sitting["alone"].values())
        for step in run["steps"]:
            own = sum(step["own_tokens_per_second_by_rank"])
            computing.append(own / alone)
            kept.append(step["tokens_per_second"] / own)
    return (
        f"In a step the ranks computed at {statistics.median(computing):.2f} of their speeds "
        f"alone, and {statistics.median(kept):.2f} of that was left once each had waited for the "
        "slowest and the gradients had been exchanged."
    )


def _exchange(sittings: Sequence[Mapping[str, Any]]) -> str:
    """Describe the exchange's part of a step, taken from the rank that waits least."""
    steps = [step for sitting in sittings for run in sitting["by_speed"] for step in run["steps"]]
    waits = [min(step["wait_seconds_by_rank"]) for step in steps]
    parts = [
        wait / (wait + max(step["compute_seconds_by_rank"]))
        for wait, step in zip(waits, steps, strict=True)
    ]
    return (
        f"- The exchange takes {statistics.median(waits):.3f} s of a step split by speed, "
        f"{statistics.median(parts):.1%} of it: more could not be hidden behind the backward pass."
    )
