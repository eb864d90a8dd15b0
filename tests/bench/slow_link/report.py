"""From a run's record to figures, and from those to the table in tests/bench/README.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.heterogeneous.report import of_the_sum, overall, speeds_of
from tests.bench.paper import aim, measured, median_of

OF_THE_SUM = 0.90
LOSS_WITHIN = 0.01


def figures_of(record: Sequence[Mapping[str, Any]], skipped: int) -> dict[str, Any]:
    """Summarize a run's metrics; the speed leaves out the first `skipped` steps."""
    steps = [line for line in record if line["kind"] == "step" and line["step"] > skipped]
    losses = [line["loss"] for line in record if line["kind"] == "evaluate"]
    end = next(line for line in record if line["kind"] == "end")
    return {
        "tokens_per_second": overall(steps),
        "held_out_loss": losses[-1] if losses else None,
        "bytes_a_step": end["exchanged_bytes"] / end["step"],
    }


def table(figures: Mapping[str, Any]) -> str:
    shares = ", ".join(f"{node} {share}" for node, share in figures["shares"].items())
    exchange = ", ".join(f"{name}={value}" for name, value in figures["exchange"].items())
    alone = figures["alone"]
    lines = [
        f"Emulated: machines of the lab with a share of a core each ({shares}), CPU, gloo, links "
        f"of {figures['link']}. {measured(figures)} A Llama of 8 layers {figures['model']}, LoRA, "
        f"{figures['steps']} steps of {figures['rows']} rows of {figures['length']} tokens. "
        "Medians of n, of tokens/s with the least and the most. Each node trained for itself at "
        "the same time as the others; parts are medians of those within a turn.",
        "",
        "| | n | tokens/s | | of the sum of the nodes alone | held-out loss | MB a step |",
        "|---|--:|--:|---|--:|--:|--:|",
    ]
    lines += [f"{speeds_of(f'{node} alone', runs, alone)} | |" for node, runs in alone.items()]
    for words, runs in (
        ("all, an exchange in every step", figures["each"]),
        (f"all, {exchange}", figures["rounds"]),
    ):
        lines.append(
            f"{speeds_of(words, runs, alone)} {median_of(runs, 'held_out_loss'):.4f} "
            f"| {median_of(runs, 'bytes_a_step') / 1e6:.2f} |"
        )
    part = of_the_sum(figures["rounds"], alone)
    rounds, each = (median_of(figures[how], "held_out_loss") for how in ("rounds", "each"))
    apart = rounds / each - 1
    words = f"The held-out loss within {LOSS_WITHIN:.0%} of that of an exchange in every step"
    lines += ["", aim(f"At least {OF_THE_SUM} of the sum", part >= OF_THE_SUM, f"{part:.3f}")]
    return "\n".join([*lines, aim(words, apart <= LOSS_WITHIN, f"{apart:+.2%}")])
