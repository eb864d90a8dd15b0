"""The held-out loss of a run, before and after the training. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HeldOut:
    """One evaluation on held-out data; a number that was not finite is None."""

    loss: float | None
    perplexity: float | None


def describe_worse(before: HeldOut | None, after: HeldOut | None) -> str | None:
    """Describe a held-out loss that rose over a run, and what to change; None if it did not."""
    if before is None or after is None or not _rose(before, after):
        return None
    return (
        f"WORSE THAN BEFORE: the held-out perplexity rose from {_shown(before.perplexity)} to "
        f"{_shown(after.perplexity)}. Start a new run with a lower learning_rate or fewer epochs; "
        "eval_every=STEPS keeps the best weights of a run in best/"
    )


def _rose(before: HeldOut, after: HeldOut) -> bool:
    """Return whether the loss rose, also to one that is not finite."""
    for name in ("loss", "perplexity"):
        first, last = getattr(before, name), getattr(after, name)
        if first is not None and last is not None:
            return last > first
    return before != after and after == HeldOut(None, None)


def held_out_in(records: Iterable[Mapping[str, Any]]) -> dict[str, HeldOut]:
    """Return the last evaluation of each time (`before`, `during`, `after`) in a run's records."""
    return {
        record["when"]: HeldOut(record.get("loss"), record.get("perplexity"))
        for record in records
        if record.get("kind") == "evaluate"
    }


def _shown(perplexity: float | None) -> str:
    """Format a perplexity; None is one that was not finite or too large for a number."""
    return "infinity" if perplexity is None or math.isinf(perplexity) else f"{perplexity:.2f}"
