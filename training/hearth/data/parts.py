"""The parts of a mixture: how many rows of each data set make an epoch. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Part:
    """One data set of a mixture: its number of rows, and the rows of it that an epoch takes.

    An epoch takes them from where the one before ended. After the last row the data set begins
    again in another order.
    """

    rows: int
    per_epoch: int


def parts_of_epoch(
    shares: Sequence[float], rows: Sequence[int], label_tokens: Sequence[int]
) -> tuple[Part, ...]:
    """Return the parts of a mixture that give each data set its share of the learned tokens.

    An epoch has about as many rows as all data sets together, and at least one of each. `shares`,
    `rows` and `label_tokens` are those of each data set, the shares in any unit.
    """
    wanted = np.array(shares) * rows / label_tokens  # rows for a token share
    per_epoch = np.maximum(1, np.round(wanted / wanted.sum() * sum(rows))).astype(int)
    return tuple(map(Part, rows, per_epoch.tolist()))
