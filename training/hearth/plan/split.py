"""Division of a step's rows over the ranks so that all finish together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hearth.base.errors import ConfigError
from hearth.base.text import counted
from hearth.plan.speed import Speed, micro_batches

_TOLERATED = 0.03
"""Part of a step that may be lost to indivisible rows; above it another global batch is advised."""


@dataclass(frozen=True)
class Plan:
    """Division of one step over the ranks.

    Attributes:
        rows: of each rank; 0 for an idle one.
        micro_batch: most rows that each rank computes at once.
        together: whether every micro-batch needs all ranks (a sharded model), so that each rank
            gets the same number of micro-batches, of different sizes and possibly empty.
        whole: whether each rank with rows gets all of them, for its layers (a pipeline).
    """

    rows: tuple[int, ...]
    micro_batch: tuple[int, ...]
    together: bool = False
    whole: bool = False

    def slice_of(self, rank: int) -> slice:
        """Return the slice of the step's batch that belongs to `rank`."""
        start = 0 if self.whole else sum(self.rows[:rank])
        return slice(start, start + self.rows[rank])

    @property
    def turns(self) -> int:
        """Number of micro-batches that all ranks compute together; 0 for independent ranks."""
        if not self.together:
            return 0
        return max(map(len, map(micro_batches, self.rows, self.micro_batch)))

    def pieces(self, rank: int) -> tuple[int, ...]:
        """Return the sizes of the micro-batches of `rank`."""
        return micro_batches(self.rows[rank], self.micro_batch[rank], self.turns)

    def row_by_row(self) -> Plan:
        """Return the same division with every row a micro-batch of its own."""
        return replace(self, micro_batch=(1,) * len(self.rows))


Plans = tuple[Plan, ...]
"""Plans of the steps between two synchronizations: one step, or a round of local steps."""


def divide(rows: int, times: Sequence[np.ndarray]) -> tuple[int, ...]:
    """Return each rank's number of `rows` such that the slowest rank finishes earliest.

    `times` are the seconds of each rank for 0, 1 … `rows` rows, never falling; infinite where a
    rank cannot. Taking the `rows` smallest of all these times fills the step, so the largest of
    them is when it ends, and no other division ends sooner. Ties go to the lower rank.
    """
    if rows == 0:
        return (0,) * len(times)
    over = np.partition(np.concatenate([each[1 : rows + 1] for each in times]), rows - 1)[rows - 1]
    taken = [int(np.searchsorted(each[1 : rows + 1], over, side="right")) for each in times]
    surplus = sum(taken) - rows
    for rank in reversed(range(len(times))):
        before = int(np.searchsorted(times[rank][1 : rows + 1], over, side="left"))
        given_back = min(surplus, taken[rank] - before)
        taken[rank] -= given_back
        surplus -= given_back
    return tuple(taken)


def divide_round(sizes: Sequence[int], times: Sequence[np.ndarray]) -> tuple[tuple[int, ...], ...]:
    """Return each rank's rows in each step of a round; ranks wait only after the last step.

    `sizes` are the rows of the steps and `times` as in `divide`, up to the largest of them. In each
    step the rows go to the ranks that finish them first, counting work left from earlier steps.
    Later steps make up for what an earlier one cannot share evenly, and the round never ends later
    than if each step were divided on its own.
    """
    busy = np.zeros(len(times))
    taken = []
    for rows in sizes:
        taken.append(
            divide(rows, [before + each for before, each in zip(busy, times, strict=True)])
        )
        busy += [each[own] for each, own in zip(times, taken[-1], strict=True)]
    return tuple(taken)


def by_shares(rows: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Return each rank's number of `rows` in proportion to `shares`; a share of 0 gets none."""
    numbers = np.arange(rows + 1, dtype=np.float64)
    idle = np.where(numbers > 0, np.inf, 0.0)
    return divide(rows, [numbers / share if share else idle for share in shares])


def shares_for(split: Sequence[int] | None, world_size: int) -> tuple[int, ...]:
    """Return each rank's relative share: the `split` setting, or equal shares.

    Raises `ConfigError` if the split is not one number a rank.
    """
    if split is None:
        return (1,) * world_size
    if len(split) != world_size:
        raise ConfigError(
            f"split: {':'.join(map(str, split))} has {len(split)} shares, but the run has "
            f"{counted(world_size, 'rank')}; give one share a rank"
        )
    return tuple(split)


def layer_counts_for(split: Sequence[int] | str, layers: int, world_size: int) -> tuple[int, ...]:
    """Return each rank's number of `layers` for the `split` setting; equal ones for a word.

    Raises `ConfigError` as `shares_for`.
    """
    shares = None if isinstance(split, str) else split
    return by_shares(layers, shares_for(shares, world_size))


def by_speed(sizes: Sequence[int], speeds: Sequence[Speed]) -> Plans:
    """Return the plans that finish steps of these sizes soonest."""
    micro_batch = tuple(speed.micro_batch for speed in speeds)
    times = [speed.times(max(sizes)) for speed in speeds]
    return tuple(Plan(rows, micro_batch) for rows in divide_round(sizes, times))


Division = Callable[[Sequence[int], Sequence[Speed]], Plans]
"""Function that divides steps of the given sizes over ranks of the given speeds."""


def in_shares(split: Sequence[int] | None) -> Division:
    """Return the division by the `split` setting, or by equal shares, regardless of speeds.

    It raises `ConfigError` as `shares_for`.
    """

    def divided(sizes: Sequence[int], speeds: Sequence[Speed]) -> Plans:
        shares = shares_for(split, len(speeds))
        micro_batch = tuple(speed.micro_batch for speed in speeds)
        return tuple(Plan(by_shares(rows, shares), micro_batch) for rows in sizes)

    return divided


def seconds_of(plans: Plans, speeds: Sequence[Speed]) -> float:
    """Return the compute seconds of the slowest rank under `plans`."""
    return max(
        sum(speed.of_rows(plan.rows[rank]) for plan in plans) for rank, speed in enumerate(speeds)
    )


def better_global_batch(rows: int, speeds: Sequence[Speed], exchange: float) -> int | None:
    """Return the nearest global batch that loses little to whole rows, if `rows` loses much.

    A step loses time because a row cannot be cut in two. `exchange` are the seconds of the gradient
    exchange. The range is half to twice `rows`; None if `rows` is good enough or no size is better.
    """
    # The end times of steps of 1, 2 … rows are the sorted times of all ranks.
    over = np.sort(np.concatenate([speed.times(2 * rows)[1:] for speed in speeds]))
    sizes = np.arange(max(1, rows // 2), 2 * rows + 1)
    # Every rank busy at its best speed all the time.
    ideal = sizes / sum(speed.rows_per_second for speed in speeds) + exchange
    lost = 1 - ideal / (over[sizes - 1] + exchange)
    if lost[sizes == rows].item() <= _TOLERATED or not (lost <= _TOLERATED).any():
        return None
    good = sizes[lost <= _TOLERATED]
    return int(good[np.argmin(np.abs(good - rows))])
