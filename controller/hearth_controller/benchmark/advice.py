"""Advice on the learning rate, derived from the speed-up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_LEAST_TIMES = 1.1
"""Smallest speed-up that allows a noticeably larger step."""


def advice(settings: Mapping[str, Any], speed_up: float | None) -> list[str]:
    """Return advice on the learning rate, as paragraphs of one or two sentences.

    The number of nodes alone changes nothing: a step has `global_batch` rows on any nodes. Only a
    larger step needs another rate. Linear scaling with a warm-up was found for SGD (Goyal et al.
    2017); for adaptive optimizers such as AdamW, which Hearth uses, theory and measurements support
    the square root (Malladi et al. 2022; Krizhevsky 2014 derives it from the noise of the
    gradient). Either is a starting point, not a guarantee.
    """
    rows, rate = settings["global_batch"], settings["learning_rate"]
    larger = round(rows * (speed_up or 0))
    times = larger / rows
    lines = [
        f"A step has {rows} rows on any number of nodes (global_batch={rows}), and the result is "
        f"the same: learning_rate={rate:g} stays right."
    ]
    if times >= _LEAST_TIMES:
        lines += [
            f"To have larger steps instead of faster ones: global_batch={larger} takes as long "
            f"on all nodes as {rows} on the fastest alone. For {times:.2f} times the rows, "
            f"square-root scaling, which suits AdamW (Malladi et al. 2022, arXiv:2205.10287), "
            f"gives learning_rate={rate * math.sqrt(times):.2g}. Linear scaling, with a warm-up "
            f"(Goyal et al. 2017, arXiv:1706.02677), was found for SGD and gives "
            f"{rate * times:.2g}: for AdamW take it for an upper end."
        ]
    return lines
