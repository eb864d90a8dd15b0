"""The rows of each step: one seeded order over all rows, the same on every rank."""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass

import numpy as np

from hearth.config import Settings
from hearth.data.packing import Part

_WINDOW = 2000
"""Rows of an order that is drawn to compare it, about as many as a stream shuffles at once."""


@functools.lru_cache(maxsize=1)  # All steps of an epoch share it.
def _order_of_epoch(parts: tuple[Part, ...], seed: int, epoch: int) -> np.ndarray:
    """Return the row numbers of one epoch in their order, int64 and read-only."""
    if len(parts) == 1:
        order = np.random.default_rng([seed, epoch]).permutation(parts[0].rows)
    else:
        order = _mixed(parts, seed, epoch)
    order.setflags(write=False)
    return order


def _mixed(parts: tuple[Part, ...], seed: int, epoch: int) -> np.ndarray:
    """Return the row numbers of one epoch of a mixture: every stretch of it has the same shares."""
    numbers, places, first = [], [], 0
    for index, part in enumerate(parts):
        begin = epoch * part.per_epoch
        passes = range(begin // part.rows, (begin + part.per_epoch - 1) // part.rows + 1)
        drawn = np.concatenate(
            [np.random.default_rng([seed, index, each]).permutation(part.rows) for each in passes]
        )
        skipped = begin - passes[0] * part.rows
        numbers.append(first + drawn[skipped : skipped + part.per_epoch])
        places.append((np.arange(part.per_epoch) + 0.5) / part.per_epoch)
        first += part.rows
    return np.concatenate(numbers)[np.argsort(np.concatenate(places), kind="stable")]


def _identity(order: np.ndarray) -> dict[str, str]:
    """Return a checksum of an order, by a name that states its dependency."""
    digest = hashlib.sha256(order.astype("<i8").tobytes())
    return {"order of the rows, which NumPy's version decides": digest.hexdigest()[:12]}


@dataclass(frozen=True)
class RowOrder:
    """The seeded order of a run's rows; every epoch has its own.

    `parts` are those of a mixture; the `rows` are numbered in their order.
    """

    rows: int
    global_batch: int
    seed: int
    parts: tuple[Part, ...] = ()

    @property
    def rows_per_epoch(self) -> int:
        """Rows that one epoch takes."""
        return sum(part.per_epoch for part in self.parts) or self.rows

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one epoch; the last one may have fewer rows."""
        return math.ceil(self.rows_per_epoch / self.global_batch)

    def steps(self, epochs: float, max_steps: int | None) -> int:
        """Return the number of steps of the run."""
        return max_steps or max(1, round(epochs * self.steps_per_epoch))

    def size(self, step: int) -> int:
        """Return the number of rows in 0-based `step`."""
        before = step % self.steps_per_epoch * self.global_batch
        return min(self.global_batch, self.rows_per_epoch - before)

    def epoch(self, number: int) -> np.ndarray:
        """Return the row numbers of an epoch, counted from 0, in their order."""
        parts = self.parts or (Part(self.rows, self.rows),)
        return _order_of_epoch(parts, self.seed, number)

    def identity(self) -> dict[str, str]:
        """Return the checksum of the first epoch's order, which must be equal on all ranks."""
        return _identity(self.epoch(0))

    def batch(self, step: int) -> np.ndarray:
        """Return the row numbers of 0-based `step`, int64, in the order the ranks share them."""
        epoch, position = divmod(step, self.steps_per_epoch)
        return self.epoch(epoch)[position * self.global_batch : (position + 1) * self.global_batch]


@dataclass(frozen=True)
class StreamOrder:
    """The order of a stream, whose rows are shuffled with `seed` before they are numbered."""

    global_batch: int
    seed: int

    steps_per_epoch = math.inf

    def steps(self, epochs: float, max_steps: int) -> int:
        """Return the number of steps of the run."""
        return max_steps

    def size(self, step: int) -> int:
        """Return the number of rows in a step."""
        return self.global_batch

    def identity(self) -> dict[str, str]:
        """Return the checksum of an order as a window has it, which must be equal on all ranks."""
        return _identity(np.random.default_rng([self.seed, 0]).permutation(_WINDOW))

    def batch(self, step: int) -> np.ndarray:
        """Return the row numbers of 0-based `step`, int64."""
        return np.arange(step * self.global_batch, (step + 1) * self.global_batch)


def choose_order(
    settings: Settings, rows: int, parts: tuple[Part, ...] = ()
) -> RowOrder | StreamOrder:
    """Return the order of `rows`, in their `parts`: as they come in a stream, else shuffled."""
    if settings.streaming:
        return StreamOrder(settings.global_batch, settings.seed)
    return RowOrder(rows, settings.global_batch, settings.seed, parts)
