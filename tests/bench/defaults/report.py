"""From raw figures to the tables in tests/bench/README.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import aim, measured

WORSE = 1.03
"""The most that the default may be worse than the best number of passes."""

LEAST, FEW, MOST = 50, 400, 1000
"""Steps: at least, at most on few data, at most on 20,000 chats."""

_NAMES = {
    "shipped": "homelab-qa, shipped",
    "chats": "chatterbot-corpus",
}


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        "A first run with all defaults, over all presets, computed from the lengths of the "
        "examples:",
        "",
        *_steps(figures["steps"]),
    ]
    if sets := figures.get("sets"):
        lines += [
            "",
            f"CPU, one process, {_threads(sets)}, float32. {measured(figures)} "
            f"{figures['model']} with the default learning rate and adapter; of the corpus one in "
            f"{figures['every']} of 899 conversations. Held-out perplexity by passes, with "
            "steps of the same size; bold is what `auto` takes:",
            "",
            "| data | passes | steps | tokens a step | before | after | |",
            "|---|--:|--:|--:|--:|--:|--:|",
        ]
        for name, found in sets.items():
            lines += _passes(name, found)
    return "\n".join([*lines, "", *_aims(figures)])


def _steps(computed: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of steps: a line for each data set, with the range over the presets."""
    lines = [
        "| data | passes | tokens a step | steps | warm-up |",
        "|---|--:|--:|--:|--:|",
    ]
    for data in dict.fromkeys(each["data"] for each in computed):
        its = [each for each in computed if each["data"] == data]
        tokens = [
            each["tokens_a_step"] * min(1, each["rows"] / each["global_batch"]) for each in its
        ]
        columns = [
            _range([each["epochs"] for each in its], "g"),
            _range(tokens, ".0f"),
            *(_range([each[name] for each in its], "g") for name in ("steps", "warmup_steps")),
        ]
        lines.append(f"| {data} | {' | '.join(columns)} |")
    return lines


def _range(values: Sequence[float], form: str) -> str:
    """Return the least and the most of some values, or the one that all are."""
    return " to ".join(dict.fromkeys(format(each(values), form) for each in (min, max)))


def _threads(sets: Mapping[str, Any]) -> str:
    """Return the numbers of threads that the runs had."""
    runs = [run for found in sets.values() for run in (found["auto"], *found["others"])]
    return f"{' or '.join(map(str, sorted({run['threads'] for run in runs})))} threads"


def _passes(name: str, found: Mapping[str, Any]) -> list[str]:
    """Return the lines of one data set, by passes."""
    runs = sorted([found["auto"], *found["others"]], key=lambda each: each["epochs"])
    lines = []
    for each in runs:
        passes = f"{each['epochs']:g}"
        if each is found["auto"]:
            passes = f"**{passes}**"
        lines.append(
            f"| {_NAMES[name]} | {passes} | {each['steps']} | {each['tokens_a_step']:.0f} "
            f"| {each['before']:.2f} | {each['after']:.2f} "
            f"| {each['after'] / each['before'] - 1:+.0%} |"
        )
    return lines


def _aims(figures: Mapping[str, Any]) -> list[str]:
    """Return the aims, and whether they are met."""
    tuned = figures["steps"]
    least = min(each["steps"] for each in tuned)
    few = max(each["steps"] for each in tuned if each["data"] != "20,000 chats")
    most = max(each["steps"] for each in tuned if each["data"] == "20,000 chats")
    words = (
        f"All presets: at least {LEAST} steps, at most {FEW} on few data and {MOST} on 20,000 chats"
    )
    met = least >= LEAST and few <= FEW and most <= MOST
    lines = [aim(words, met, f"{least} to {few}, and {most}")]
    for name, found in figures.get("sets", {}).items():
        auto = found["auto"]["after"]
        best = min([auto, *(each["after"] for each in found["others"])])
        words = f"{_NAMES[name]}: at most {WORSE - 1:.0%} worse than the best number of passes"
        lines.append(aim(words, auto <= WORSE * best, f"{auto / best - 1:.1%}"))
    return lines
