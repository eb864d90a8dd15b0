"""Advice on the learning rate, derived from the speed-up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_WORTH_SAYING = 1.1
"""Smallest speed-up that allows a noticeably larger step."""


@dataclass(frozen=True)
class Larger:
    """A step that takes as long on all nodes as today's takes on the fastest one alone.

    Attributes:
        rows: Rows of the step (`global_batch`).
        times: Ratio to the current number of rows.
        linear, root: Learning rate by linear and by square-root scaling.
    """

    rows: int
    times: float
    linear: float
    root: float


def larger(settings: Mapping[str, Any], speed_up: float | None) -> Larger | None:
    """Return the larger step that a speed-up allows, or None."""
    rows = round(settings["global_batch"] * (speed_up or 0))
    times = rows / settings["global_batch"]
    if times < _WORTH_SAYING:
        return None
    rate = settings["learning_rate"]
    return Larger(rows, times, rate * times, rate * math.sqrt(times))


def advice(settings: Mapping[str, Any], speed_up: float | None) -> list[str]:
    """Return advice on the learning rate, as paragraphs of one or two sentences.

    The number of nodes alone changes nothing: a step has `global_batch` rows on any nodes. Only a
    larger step needs another rate. Linear scaling with a warm-up was found for SGD (Goyal et al.
    2017); for adaptive optimizers such as AdamW, which Hearth uses, theory and measurements support
    the square root (Malladi et al. 2022; Krizhevsky 2014 derives it from the noise of the
    gradient). Either is a starting point, not a guarantee.
    """
    rows, rate = settings["global_batch"], settings["learning_rate"]
    said = [
        f"A step has {rows} rows on any number of nodes (global_batch={rows}), and the result is "
        f"the same: learning_rate={rate:g} stays right."
    ]
    if step := larger(settings, speed_up):
        said += [
            f"To have larger steps instead of faster ones: global_batch={step.rows} takes as long "
            f"on all nodes as {rows} on the fastest alone. For {step.times:.2f} times the rows, "
            f"square-root scaling, which suits AdamW (Malladi et al. 2022, arXiv:2205.10287), "
            f"gives learning_rate={step.root:.2g}. Linear scaling, with a warm-up (Goyal et al. "
            f"2017, arXiv:1706.02677), was found for SGD and gives {step.linear:.2g}: for AdamW "
            "take it for an upper end."
        ]
    return said
