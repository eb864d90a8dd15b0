"""The course of a run's loss as a line of blocks, for a model card. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean

_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Return `values` as at most `width` blocks, each the mean of its part; '' without any."""
    if not values:
        return ""
    count = min(width, len(values))
    edges = [round(number * len(values) / count) for number in range(count + 1)]
    means = [fmean(values[a:b]) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    # Divided first: the inverse of a tiny difference would be infinite.
    span, top = high - low or 1.0, len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((mean - low) / span * top)] for mean in means)
