"""Who computes which rows of a step. Pure arithmetic: no torch, no files.

A step is a global batch: a slice of one seeded order over all rows, the same on every rank. The
plan says how many of its rows each rank takes. Because losses are weighted by token over the
whole global batch (see `trainer`), the gradient does not depend on the plan; only the time does.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hearth.errors import ConfigError


def divide(rows: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Return how many of `rows` each rank takes so that the slowest finishes earliest.

    `shares` are relative speeds; a rank with share 0 takes none. Minimises
    max(rows_r / share_r): each row goes where it would be finished first, which is optimal for
    identical jobs on machines of different speed. Ties go to the lower rank.
    """
    taken = [0] * len(shares)
    finish = [(1 / share, rank) for rank, share in enumerate(shares) if share > 0]
    heapq.heapify(finish)
    for _ in range(rows):
        _, rank = finish[0]
        taken[rank] += 1
        heapq.heapreplace(finish, ((taken[rank] + 1) / shares[rank], rank))
    return tuple(taken)


def shares_for(split: Sequence[int] | None, world_size: int) -> tuple[int, ...]:
    """Return each rank's relative share: the `split` setting, or equal shares.

    Raises `ConfigError` if the split is not one number a rank.
    """
    if split is None:
        return (1,) * world_size
    if len(split) != world_size:
        raise ConfigError(
            f"split: {':'.join(map(str, split))} has {len(split)} shares, but the run has "
            f"{world_size} rank{'s' * (world_size > 1)}; give one share a rank"
        )
    return tuple(split)


def slice_of(rank: int, counts: Sequence[int]) -> slice:
    """Return which part of a batch belongs to `rank` when the ranks take `counts` rows each."""
    start = sum(counts[:rank])
    return slice(start, start + counts[rank])


def micro_batches(rows: np.ndarray, micro_batch: int) -> Iterator[np.ndarray]:
    """Yield `rows` in pieces of at most `micro_batch`."""
    for start in range(0, len(rows), micro_batch):
        yield rows[start : start + micro_batch]


@functools.lru_cache(maxsize=1)  # All steps of an epoch share it.
def _order_of_epoch(rows: int, seed: int, epoch: int) -> np.ndarray:
    """Return all row numbers, int64 and read-only, in the order of one epoch."""
    order = np.random.default_rng([seed, epoch]).permutation(rows)
    order.setflags(write=False)
    return order


@dataclass(frozen=True)
class Order:
    """The seeded order in which a run sees its rows; every epoch has its own."""

    rows: int
    global_batch: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Steps in one epoch; the last one may have fewer rows."""
        return math.ceil(self.rows / self.global_batch)

    def steps(self, epochs: float, max_steps: int | None) -> int:
        """Return how many steps the run has."""
        return max_steps or max(1, round(epochs * self.steps_per_epoch))

    def epoch_of(self, step: int) -> float:
        """Return how many epochs are done before 0-based `step`."""
        return step / self.steps_per_epoch

    def batch(self, step: int) -> np.ndarray:
        """Return the row numbers of 0-based `step`, int64, in the order the ranks share them."""
        epoch, position = divmod(step, self.steps_per_epoch)
        order = _order_of_epoch(self.rows, self.seed, epoch)
        return order[position * self.global_batch : (position + 1) * self.global_batch]
