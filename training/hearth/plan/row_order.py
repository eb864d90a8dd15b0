"""The rows of each step: one seeded order over all rows, the same on every rank."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np


@functools.lru_cache(maxsize=1)  # All steps of an epoch share it.
def _order_of_epoch(rows: int, seed: int, epoch: int) -> np.ndarray:
    """Return all row numbers, int64 and read-only, in the order of one epoch."""
    order = np.random.default_rng([seed, epoch]).permutation(rows)
    order.setflags(write=False)
    return order


@dataclass(frozen=True)
class RowOrder:
    """The seeded order in which a run sees its rows; every epoch has its own."""

    rows: int
    global_batch: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one epoch; the last one may have fewer rows."""
        return math.ceil(self.rows / self.global_batch)

    def steps(self, epochs: float, max_steps: int | None) -> int:
        """Return the number of steps of the run."""
        return max_steps or max(1, round(epochs * self.steps_per_epoch))

    def size(self, step: int) -> int:
        """Return the number of rows in 0-based `step`."""
        before = step % self.steps_per_epoch * self.global_batch
        return min(self.global_batch, self.rows - before)

    def batch(self, step: int) -> np.ndarray:
        """Return the row numbers of 0-based `step`, int64, in the order the ranks share them."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = _order_of_epoch(self.rows, self.seed, epoch)
        return order[position * self.global_batch : (position + 1) * self.global_batch]
