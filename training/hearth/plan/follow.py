"""How the split moves when a machine slows down or recovers.

After each step every rank knows how long each of them computed before the exchange (not in all: the
victims of a slow peer wait for it, and look as slow as it is). From that and what was measured
beforehand follows how much slower or faster each rank is now. All ranks see the same numbers, so
all of them come to the same next plan without a word.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hearth.plan.speed import UNKNOWN, Speed
from hearth.plan.split import Plan, divide

_REMEMBERED = 3
"""Steps whose median says how fast a rank is now: one hiccup moves nothing, a second one does."""

_WORTH_MOVING = 0.03
"""Part of a step's time that another split must save."""

_ASKED_AGAIN = 50
"""Steps after which an idle rank gets one row, to see whether it has recovered."""


class Follower:
    """The plan of each step, moved between steps as the ranks' speeds change.

    Args:
        speeds: what was measured of each rank, with full rows.
        full_row: tokens of such a row; None takes all rows for alike.
    """

    def __init__(self, speeds: Sequence[Speed], full_row: int | None = None) -> None:
        self._speeds = list(speeds)
        self._full_row = full_row
        # What was measured counts as seen all but once, so that the first step, which pays for
        # what later ones find ready, moves nothing.
        self._recent: list[deque[float]] = [
            deque([] if speed == UNKNOWN else [1.0] * (_REMEMBERED - 1), maxlen=_REMEMBERED)
            for speed in speeds
        ]
        self._idle = [0] * len(speeds)
        self._limits: list[int | None] = [None] * len(speeds)
        self._plans: dict[int, Plan] = {}

    @property
    def slowness(self) -> tuple[float, ...]:
        """How many times as long as was measured beforehand each rank takes now."""
        return tuple(statistics.median(recent) if recent else 1.0 for recent in self._recent)

    @property
    def known(self) -> list[dict[str, Any]]:
        """What the steps have told of each rank, as JSON holds it: for `recall`."""
        return [
            {"row_seconds": speed.seconds[0], "slowness": slow, "limit": limit}
            for speed, slow, limit in zip(self._speeds, self.slowness, self._limits, strict=True)
        ]

    def recall(self, plan: Plan, known: Sequence[Mapping[str, Any]]) -> None:
        """Go on from where an earlier launch of the run, on the same ranks, had come.

        `known` is what it knew of them. Of a rank that was measured anew since, that is out of
        date, what its memory held as well: the measuring has tried that too.
        """
        for rank, (speed, then) in enumerate(zip(self._speeds, known, strict=True)):
            if then["row_seconds"] != speed.seconds[0]:
                continue
            self._recent[rank] = deque([then["slowness"]] * _REMEMBERED, maxlen=_REMEMBERED)
            if then["limit"] is not None:
                self.fits_no_more_than(rank, then["limit"])
        self._plans[sum(plan.rows)] = plan

    def plan(self, step: int, rows: int) -> Plan:
        """Return the plan for a step of `rows`: the last one, unless another is worth moving to."""
        best, last = self.share(rows), self._plans.get(rows)
        if last is None or last.micro_batch != best.micro_batch or self._saves(best, last, rows):
            self._plans[rows] = best
        return self._asking(self._plans[rows])

    def share(self, rows: int) -> Plan:
        """Return the plan by which `rows` are done soonest."""
        sizes = tuple(speed.micro_batch for speed in self._speeds)
        return Plan(divide(rows, self._times(rows)), sizes)

    def _times(self, rows: int) -> list[np.ndarray]:
        """Return the seconds of each rank for 0, 1 … `rows` rows, as slow as it is now."""
        each = zip(self._speeds, self.slowness, strict=True)
        return [speed.times(rows) * slow for speed, slow in each]

    def _saves(self, best: Plan, last: Plan, rows: int) -> bool:
        """Return whether a step is over enough sooner under `best` than under `last`."""
        times = self._times(rows)
        return _over(best, times) < _over(last, times) * (1 - _WORTH_MOVING)

    def observe(self, plan: Plan, tokens: Sequence[int], compute_seconds: Sequence[float]) -> None:
        """Take note of how long each rank computed for its part of `plan`, and its tokens."""
        for rank, rows in enumerate(plan.rows):
            self._idle[rank] = 0 if rows else self._idle[rank] + 1
            if rows and compute_seconds[rank] > 0:
                fullness = tokens[rank] / (rows * self._full_row) if self._full_row else 1.0
                expected = self._speeds[rank].of_rows(rows) * fullness
                self._recent[rank].append(compute_seconds[rank] / expected)

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Plan from now on with micro-batches of at most `size` rows on `rank`."""
        self._speeds[rank] = self._speeds[rank].no_larger_than(size)
        self._limits[rank] = min(size, self._limits[rank] or size)

    def _asking(self, plan: Plan) -> Plan:
        """Return `plan`, but with a row for a rank that has been idle for long."""
        idle = max(range(len(self._idle)), key=self._idle.__getitem__)
        if plan.rows[idle] or self._idle[idle] < _ASKED_AGAIN:
            return plan
        rows = list(plan.rows)
        rows[idle] = 1
        rows[int(np.argmax(rows))] -= 1
        return Plan(tuple(rows), plan.micro_batch)


def _over(plan: Plan, times: Sequence[np.ndarray]) -> float:
    """Return when a step under `plan` is over."""
    return max(float(each[rows]) for each, rows in zip(times, plan.rows, strict=True))
