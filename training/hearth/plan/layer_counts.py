"""Layer counts for an order of ranks: those that finish a step soonest, within their memory."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hearth.plan.makespan import in_flight, least_makespans
from hearth.plan.placement import Home, LayerSpeed, Pipeline, Placement
from hearth.plan.speed import Speed

_SIMULATED = 3
"""Number of layer counts of an order that are simulated, of those that seem best by either of two
formulas. Compared with all counts of up to 24 layers over 2 to 4 ranks, the step is as short in
most cases, and 2.6% longer at worst."""

CLEARLY = 1e-9
"""Relative gain below which two placements count as equally fast; the earlier one is kept."""


def is_faster(seconds: float, than: float) -> bool:
    """Return whether a step of `seconds` is clearly shorter."""
    return seconds < than * (1 - CLEARLY)


@dataclass(frozen=True)
class LayerCounts:
    """Layer counts for an order of ranks, and seconds that a step takes at least."""

    order: tuple[int, ...]
    counts: tuple[int, ...]
    least: float


@dataclass(frozen=True)
class TimedCounts:
    """The best layer counts for an order of ranks."""

    order: tuple[int, ...]
    counts: tuple[int, ...]
    seconds: float


class Step:
    """One step's sizes, and the best layer counts for any order of the ranks."""

    def __init__(
        self, home: Home, layers: int, rows: int, micro_batch: int, least: int = 1
    ) -> None:
        self.home = home
        self.layers = layers
        self.rows = rows
        self.micro_batch = micro_batch
        self.micro_batches = math.ceil(rows / micro_batch)
        self.least = least
        self.layer = [_seconds(speed.layer, micro_batch) for speed in home.speeds]
        self.embedding, self.head = (
            [_end_seconds(speed, getattr(speed, end), micro_batch) for speed in home.speeds]
            for end in ("embedding", "head")
        )

    def extra(self, order: Sequence[int]) -> np.ndarray:
        """Return the seconds of each stage beside its layers, infinite for what fits no memory."""
        extra = np.zeros(len(order))
        extra[0] += self.embedding[order[0]]
        extra[-1] += self.head[order[-1]]
        return extra

    def links(self, order: Sequence[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the seconds of each link for a micro-batch's activations, and its gradient."""
        pairs = list(itertools.pairwise(order))
        there = (self.home.message(a, b, self.micro_batch) for a, b in pairs)
        back = (self.home.message(b, a, self.micro_batch) for a, b in pairs)
        return tuple(there), tuple(back)

    def pipeline(self, order: Sequence[int], counts: Sequence[int]) -> Pipeline:
        """Return the pipeline with these layer counts."""
        layer = np.array([self.layer[rank] for rank in order])
        seconds = layer * np.array(counts) + self.extra(order)
        return Pipeline(
            Placement.of(order, counts),
            self.rows,
            self.micro_batch,
            self.micro_batches,
            tuple(seconds.tolist()),
            *self.links(order),
        )

    def most(self, order: Sequence[int]) -> list[int]:
        """Return the most layers that fit each stage; 0 where not even one does."""
        end = len(order) - 1
        return [
            self._fitting(
                rank,
                position == 0,
                position == end,
                in_flight(self.micro_batches, position, end + 1),
            )
            for position, rank in enumerate(order)
        ]

    @functools.cache  # noqa: B019 - lives as long as one call of `place`
    def _fitting(self, rank: int, first: bool, last: bool, held: int) -> int:
        ends = [self.embedding[rank]] * first + [self.head[rank]] * last
        if math.inf in ends:
            return 0
        room = self.home.rooms[rank]
        low, high = 0, self.layers
        while low < high:
            middle = (low + high + 1) // 2
            need = self.home.need(
                rank, middle, first=first, last=last, in_flight=held, rows=self.micro_batch
            )
            low, high = (middle, high) if need <= room else (low, middle - 1)
        return low

    def counts(self, order: tuple[int, ...], within: float = math.inf) -> TimedCounts | None:
        """Return the layer counts that finish a step soonest in this order.

        None if none fits, or finishes it `within` these seconds.
        """
        return self.fastest(self.candidates(order), within)

    def fastest(
        self, candidates: Iterable[LayerCounts], within: float = math.inf
    ) -> TimedCounts | None:
        """Return the fastest of these, the first one of those as fast; None as `counts` does.

        The ones that cannot be it are not simulated.
        """
        listed = list(candidates)
        found, found_number = None, 0
        for number in sorted(range(len(listed)), key=lambda number: listed[number].least):
            each = listed[number]
            if each.least > (found.seconds if found else within) * (1 + CLEARLY):
                break
            seconds = self.seconds(each.order, each.counts)
            margin = CLEARLY if number < found_number else -CLEARLY
            if seconds < (found.seconds * (1 + margin) if found else within):
                found, found_number = TimedCounts(each.order, each.counts, seconds), number
        return found

    @functools.cache  # noqa: B019 - lives as long as one call of `place`
    def seconds(self, order: tuple[int, ...], counts: tuple[int, ...]) -> float:
        """Return the seconds of a step with these layer counts."""
        return self.pipeline(order, counts).step_seconds

    @functools.cache  # noqa: B019 - lives as long as one call of `place`
    def candidates(self, order: tuple[int, ...]) -> list[LayerCounts]:
        """Return the layer counts in this order that seem best, none if none fits.

        For each possible limit on the seconds of the stages the layers go to the ranks that compute
        a layer fastest, as many as the limit and the memory allow: no other counts within it have a
        smaller sum.
        """
        most = np.array(self.most(order))
        if (
            not self.least <= len(order) <= self.layers
            or not most.all()
            or most.sum() < self.layers
        ):
            return []
        layer = np.array([self.layer[rank] for rank in order])
        extra, (there, back) = self.extra(order), self.links(order)
        possible = extra + np.outer(np.arange(1, self.layers + 1), layer)
        limits = _limits(possible, there, back, self.micro_batches)
        # A limit is the time of a stage itself, so rounding must not push that stage out.
        allowed = np.floor((limits * (1 + 1e-12) - extra) / layer)
        allowed = np.clip(allowed, 0, np.minimum(most, self.layers)).astype(np.int64)
        given = _shared_out(allowed, layer, self.layers)
        stages = extra + given * layer
        least = least_makespans(stages, there, back, self.micro_batches)
        pace = np.maximum(stages.max(1), max([*there, *back], default=0.0))
        steady = stages.sum(1) + (self.micro_batches - 1) * pace
        seem_best = {
            tuple(given[number].tolist()): float(least[number])
            for formula in (least, steady)
            for number in np.argsort(formula, kind="stable")[:_SIMULATED]
        }
        return [LayerCounts(order, counts, seconds) for counts, seconds in seem_best.items()]


def _limits(
    possible: np.ndarray, there: Sequence[float], back: Sequence[float], micro_batches: int
) -> np.ndarray:
    """Return limits (n, number of stages) on the seconds of the stages of an order.

    `possible` (layers, number of stages) are the seconds with any number of layers. Each of them is
    taken as the limit of all stages; and as that of its own stage, while the others may take what
    makes them finish a step at the same time, the later the less: see `least_makespans`.
    """
    paces = np.repeat(np.unique(possible)[:, None], possible.shape[1], 1)
    if micro_batches == 1:
        return paces
    # Stage p may take part[p] * step - lag[p], as the stages before it take before * step + late.
    part, lag = np.zeros((2, possible.shape[1]))
    before = late = 0.0
    for position in range(len(part)):
        part[position], lag[position] = (1 - before) / micro_batches, late / micro_batches
        before += part[position]
        late += sum(there[position : position + 1]) + sum(back[position : position + 1])
        late -= lag[position]
    steps = np.unique((possible + lag) / part)
    return np.concatenate([paces, np.outer(steps, part) - lag])


def _shared_out(allowed: np.ndarray, layer: np.ndarray, layers: int) -> np.ndarray:
    """Return layer counts (n, number of stages) within the `allowed` ones, where these suffice.

    A stage has at least one, and those that take least for a `layer` have as many as they may.
    """
    allowed = allowed[(allowed >= 1).all(1) & (allowed.sum(1) >= layers)]
    given = np.ones_like(allowed)
    left = np.full(len(allowed), layers - len(layer))
    for stage in np.argsort(layer, kind="stable"):
        taken = np.minimum(allowed[:, stage] - 1, left)
        given[:, stage] += taken
        left -= taken
    return np.unique(given, axis=0)


def _end_seconds(speed: LayerSpeed, end: Speed | None, rows: int) -> float:
    """Return the seconds of the embedding or the head of a rank, infinite where it did not fit."""
    if end is None or end.sizes[-1] < min(rows, speed.layer.sizes[-1]):
        return math.inf
    return _seconds(end, rows)


def _seconds(speed: Speed, rows: int) -> float:
    """Return the seconds for a micro-batch of `rows`, beyond the measured sizes in proportion."""
    largest = speed.sizes[-1]
    if rows > largest:
        return speed.seconds[-1] * rows / largest
    return float(np.interp(rows, speed.sizes, speed.seconds))
