"""From raw figures to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import aim, measured

EXACT = 1e-9
SINGLE = 1e-5
_ROWS = 2
"""Lines of the table beside the first step."""


def apart(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest difference of two loss curves."""
    return max(abs(other - loss) for loss, other in zip(losses, others, strict=True))


def table(figures: Mapping[str, Any]) -> str:
    runs = {run["run"]: run for run in figures["runs"]}
    one, three, resumed = (runs[f"{name}-fp64"] for name in ("one", "three", "resumed"))
    steps = len(one["losses"])
    rows, length = figures["global_batch"], figures["sequence_length"]
    lines = [
        f"CPU, gloo, AdamW. {measured(figures)} {figures['letters'] / 1e6:.1f} million letters: "
        f"{figures['tokens_per_epoch']} tokens in {figures['rows']} rows; a GPT-2 of "
        f"{figures['trainable_parameters']} weights, random at the beginning; {rows} rows of "
        f"{length} tokens a step. Three ranks take 4, 2 and 1 of 7 parts. Loss a token, float64:",
        "",
        f"| step | one process | three ranks | stopped at step {figures['stopped']}, resumed |",
        "|--:|--:|--:|--:|",
    ]
    for step in sorted({1, *range(steps // _ROWS, steps, max(1, steps // _ROWS)), steps}):
        losses = (f"{run['losses'][step - 1]:.6f}" for run in (one, three, resumed))
        lines.append(f"| {step} | {' | '.join(losses)} |")
    before, after = one["perplexity"][0], one["perplexity"][-1]
    lines += ["", f"Perplexity on the validation shard: {before:.0f} before, {after:.1f} after."]
    single = apart(runs["one-fp32"]["losses"], runs["three-fp32"]["losses"])
    double, weights = apart(one["losses"], three["losses"]), three["furthest"]
    same = resumed["losses"] == three["losses"] and resumed["furthest"] == 0
    return "\n".join(
        [
            *lines,
            "",
            aim(
                f"Three ranks and one, float64: losses within {EXACT:g}",
                double <= EXACT,
                f"{double:.1e}",
            ),
            aim(f"and every weight within {EXACT:g}", weights <= EXACT, f"{weights:.1e}"),
            aim("Stopped and resumed: equal bit for bit", same, f"{resumed['furthest']:g}"),
            aim(
                f"Three ranks and one, float32: losses within {SINGLE:g}",
                single <= SINGLE,
                f"{single:.1e}",
            ),
        ]
    )
