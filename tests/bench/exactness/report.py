"""From raw figures to the table in docs/measurements.md. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.paper import met

CHANGE_WITHIN = 1e-3
LOSS_WITHIN = 1e-5


def loss_apart(losses: Sequence[float], others: Sequence[float]) -> float:
    """Return the largest difference of two loss curves, relative to the first."""
    return max(abs(other / loss - 1) for loss, other in zip(losses, others, strict=True))


def table(figures: Mapping[str, Any]) -> str:
    """Return the section of docs/measurements.md for `figures`, as `__main__` records them."""
    first, *others = figures["ways"]
    lines = [
        f"CPU, gloo, float32, AdamW. Measured on {figures['date']} on {figures['computer']}; "
        f"Hearth {figures['hearth']}. {figures['model']}, {len(first['losses'])} steps, compared "
        f"with {first['way']}: Δ is what the parameters have changed since the beginning, Δ' the "
        "same in the other run.",
        "",
        "| | ‖Δ-Δ'‖ / ‖Δ‖ | largest difference of a parameter | loss curve, relative |",
        "|---|--:|--:|--:|",
    ]
    of_change, of_loss = [], []
    for way in others:
        of_change.append(way["apart"] / first["change"])
        of_loss.append(loss_apart(first["losses"], way["losses"]))
        lines.append(
            f"| {way['way']} | {of_change[-1]:.1e} | {way['furthest']:.1e} | {of_loss[-1]:.1e} |"
        )
    return "\n".join(
        [
            *lines,
            "",
            f"- The change of the parameters within {CHANGE_WITHIN:g}: "
            f"{met(max(of_change) <= CHANGE_WITHIN)} ({max(of_change):.1e}).",
            f"- The loss curve within {LOSS_WITHIN:g}: "
            f"{met(max(of_loss) <= LOSS_WITHIN)} ({max(of_loss):.1e}).",
        ]
    )
