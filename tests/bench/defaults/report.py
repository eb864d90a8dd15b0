"""From raw figures to the tables in docs/measurements.md. Pure."""

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
        "A first run with all defaults. Steps of each preset, computed from the lengths of the "
        "examples in tokens (about 103 of the shipped ones, 40 to 80 of short chats); rates as "
        "parts of the peak:",
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
    """Return the table of steps, with one line for presets that have the same."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for each in computed:
        own = tuple(
            value for name, value in each.items() if name not in ("preset", "learning_rate")
        )
        alike.setdefault(own, []).append(each["preset"])
    names = [name for name in computed[0] if name not in ("preset", "learning_rate")]
    lines = [
        "| preset | data | passes | rows a step | tokens a step | steps | warm-up | first rate "
        "| peak | last rate |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for values, presets in alike.items():
        own = dict(zip(names, values, strict=True))
        more = f" and {len(presets) - 1} more" if len(presets) > 1 else ""
        lines.append(
            f"| {presets[0]}{more} | {own['data']} | {own['epochs']:g} "
            f"| {min(own['global_batch'], own['rows'])} "
            f"| {own['tokens_a_step'] * min(1, own['rows'] / own['global_batch']):.0f} "
            f"| {own['steps']} | {own['warmup_steps']} | {own['first_rate']:.2g} "
            f"| {own['peak_rate']:.2g} | {own['last_rate']:.2g} |"
        )
    return lines


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
