"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.bench.paper import aim, measured

LEAST = 0.9


def table(figures: Mapping[str, Any]) -> str:
    lines = [
        f"{figures['model']} on two ranks of a core each with a split of 2:1, float32, LoRA. "
        f"{measured(figures)} {figures['pairs']} questions on functions of Python: the first line "
        "of a docstring is chosen, a long stretch of it rejected. First it learned answers, either "
        f"kind, for {figures['taught']['steps']} steps; dpo and kto go on from there, orpo begins "
        "anew.",
        "",
        "| objective | learning rate | steps | minutes | held-out accuracy | perplexity of the "
        "chosen | length of an answer |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    aims = []
    for name, run in figures["runs"].items():
        before, after = (run[when] for when in ("before", "after"))
        lines.append(
            f"| {name} | {run['rate']:g} | {run['steps']} | {run['seconds'] / 60:.1f} "
            f"| {before['accuracy']:.2f} → {after['accuracy']:.2f} "
            f"| {before['perplexity']:.1f} → {after['perplexity']:.1f} "
            f"| {len(before['answer'])} → {len(after['answer'])} |"
        )
        words = f"{name}: held-out accuracy at least {LEAST}"
        aims.append(aim(words, after["accuracy"] >= LEAST, f"{after['accuracy']:.2f}"))
    return "\n".join([*lines, "", *aims])
