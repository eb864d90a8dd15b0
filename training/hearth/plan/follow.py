"""Adjust the split when a machine slows down or recovers.

After each exchange every rank knows the compute time of each rank before it (compute only: the
victims of a slow peer wait for it, and their total time looks as slow). Compared with the measured
speeds, it shows each rank's current slowdown. All ranks see the same numbers, so all of them derive
the same plans without further communication. After a change of the group their state depends on the
arguments of `regroup` alone, so that a rank which has just joined derives the same plans too.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np

from hearth.plan.planner import Known, Planner
from hearth.plan.speed import UNKNOWN, Speed
from hearth.plan.split import Plan, Plans, divide_round

_WINDOW = 3
"""Number of steps whose median is a rank's current slowdown: one outlier never moves the split."""

_MIN_GAIN = 0.03
"""Part of a step's time that a new split must save; smaller differences are normal variation."""

_MIN_GAIN_OF_ROUND = 0.02
"""The same threshold for a round of local steps, whose mean varies less."""

_PLANS_KEPT = 8
"""Number of recent (step or round) sizes whose plans are kept: an epoch's last, short step falls on
different positions of a round."""

_PROBED_AFTER = 50
"""Steps after which an idle rank gets one row, to see whether it has recovered."""


class AdaptivePlanner(Planner):
    """The plan of each step, adjusted between steps as the ranks' speeds change.

    Args:
        speeds: measured speed of each rank of the layout, with full rows.
        full_row: tokens of such a row; None treats all rows as equal.
    """

    def __init__(self, speeds: Sequence[Speed], full_row: int | None = None) -> None:
        self._ranks = len(speeds)
        self._full_row = full_row
        self._limits: dict[int, int] = {}
        self.regroup(range(self._ranks), dict(enumerate(speeds)), {})

    def regroup(
        self, members: Sequence[int], speeds: Mapping[int, Speed], slowness: Mapping[int, float]
    ) -> None:
        """Plan from now on for `members`, as in `Planner.regroup`.

        Raises `ValueError` if there is no member, or one without a speed.
        """
        if not members or not set(members) <= set(speeds):
            raise ValueError(f"ranks {list(members)}: speeds are known of {sorted(speeds)} only")
        self._members = tuple(members)
        self._speeds = {
            rank: speed.no_larger_than(self._limits.get(rank, speed.sizes[-1]))
            for rank, speed in speeds.items()
        }
        self._recent: list[deque[float]] = [
            _observations(self._speeds.get(rank, UNKNOWN), slowness.get(rank))
            for rank in range(self._ranks)
        ]
        self._idle = [0] * self._ranks
        self._recent_plans: dict[tuple[int, ...], Plans] = {}
        self._observed = False
        self._exchanges: deque[float] = deque(maxlen=_WINDOW)

    @property
    def known(self) -> Known:
        """The knowledge of this planner of all ranks, absent ones included."""
        slowness = {
            rank: slow
            for rank, (slow, recent) in enumerate(zip(self.slowness, self._recent, strict=True))
            if recent
        }
        return Known(dict(self._speeds), slowness, dict(self._limits))

    @property
    def slowness(self) -> tuple[float, ...]:
        """Current time of each rank as a multiple of its measured time."""
        return tuple(statistics.median(recent) if recent else 1.0 for recent in self._recent)

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return the plans for steps of these sizes up to the next exchange.

        The previous plans are kept unless others save enough time.
        """
        best, last = self._best(sizes), self._recent_plans.pop(tuple(sizes), None)
        if (
            last is None
            or last[0].micro_batch != best[0].micro_batch
            or self._saves(best, last, sizes)
        ):
            last = best
        self._recent_plans[tuple(sizes)] = last
        if len(self._recent_plans) > _PLANS_KEPT:
            del self._recent_plans[next(iter(self._recent_plans))]
        first, *others = last
        return (self._probing(first), *others)

    def share(self, rows: int) -> Plan:
        """Return the plan that finishes `rows` soonest."""
        return self._best([rows])[0]

    def _best(self, sizes: Sequence[int]) -> Plans:
        """Return the plans that finish steps of these sizes soonest."""
        micro_batch = tuple(
            self._speeds.get(rank, UNKNOWN).micro_batch for rank in range(self._ranks)
        )
        divided = divide_round(sizes, self._times(max(sizes)))
        return tuple(Plan(rows, micro_batch) for rows in divided)

    def _times(self, rows: int) -> list[np.ndarray]:
        """Return each rank's seconds for 0, 1 … `rows` rows now; infinite for an absent rank."""
        absent = np.where(np.arange(rows + 1) > 0, np.inf, 0.0)
        times = [absent] * self._ranks
        for rank in self._members:
            times[rank] = self._speeds[rank].times(rows) * self.slowness[rank]
        return times

    def _saves(self, best: Plans, last: Plans, sizes: Sequence[int]) -> bool:
        """Return whether `best` finishes the steps enough sooner than `last`.

        The exchange is a part of the steps. Where it takes most of them, none saves enough: a
        machine that rests most of the time computes faster than it would with more rows.
        """
        times = self._times(max(sizes))
        enough = _MIN_GAIN if len(sizes) == 1 else _MIN_GAIN_OF_ROUND
        exchange = statistics.median(self._exchanges) if self._exchanges else 0.0
        before = _over(last, times)
        return exchange < before and _over(best, times) < before - (before + exchange) * enough

    def observe(
        self,
        plans: Plans,
        tokens: Sequence[int],
        compute_seconds: Sequence[float],
        exchange_seconds: float = 0.0,
    ) -> None:
        """Record each rank's compute time and tokens for its part of `plans`, and the exchange.

        The mean of many steps is as reliable as the median of a few, except in the first steps of a
        launch: those include warm-up, which must not move the split.
        """
        counts = max(1, min(_WINDOW, len(plans) // 2)) if self._observed else 1
        self._observed = True
        self._exchanges.append(exchange_seconds)
        for rank in self._members:
            rows = [plan.rows[rank] for plan in plans]
            self._idle[rank] = 0 if any(rows) else self._idle[rank] + len(plans)
            if any(rows) and compute_seconds[rank] > 0:
                fullness = tokens[rank] / (sum(rows) * self._full_row) if self._full_row else 1.0
                expected = math.fsum(map(self._speeds[rank].of_rows, rows)) * fullness
                self._recent[rank].extend([compute_seconds[rank] / expected] * counts)

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Plan from now on with micro-batches of at most `size` rows on `rank`."""
        self._limits[rank] = min(size, self._limits.get(rank, size))
        if rank in self._speeds:
            self._speeds[rank] = self._speeds[rank].no_larger_than(size)

    def _probing(self, plan: Plan) -> Plan:
        """Return `plan`, with one row for a member that has been idle for a long time."""
        idle = max(self._members, key=self._idle.__getitem__)
        if plan.rows[idle] or self._idle[idle] < _PROBED_AFTER:
            return plan
        rows = list(plan.rows)
        rows[idle] = 1
        rows[int(np.argmax(rows))] -= 1
        return Plan(tuple(rows), plan.micro_batch)


def _observations(speed: Speed, slowness: float | None) -> deque[float]:
    """Return the first observations of a rank whose last known slowdown is `slowness`, if any.

    They are one short of a full window, so that the first step, which includes warm-up, does not
    move the split. Nothing is known of a rank that was neither measured nor observed.
    """
    if slowness is None and speed == UNKNOWN:
        return deque(maxlen=_WINDOW)
    return deque([1.0 if slowness is None else slowness] * (_WINDOW - 1), maxlen=_WINDOW)


def _over(plans: Plans, times: Sequence[np.ndarray]) -> float:
    """Return when the steps under `plans` end; exact in any Python, unlike `sum`."""
    return max(
        math.fsum(float(each[plan.rows[rank]]) for plan in plans) for rank, each in enumerate(times)
    )
