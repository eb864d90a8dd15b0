"""Search for the fastest placement of a model's layers, within the memory of each rank."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hearth.base.errors import ModelError
from hearth.plan.placement import Home, Pipeline, Placement, in_flight
from hearth.plan.speed import Speed, micro_batches

_ALL_ORDERS = 6
"""Largest number of ranks for which every order of every subset is tried."""

_CLIMBS = 8
"""Number of starts, the best ones, from which the search for many ranks climbs."""

TOO_FEW = "parallel: pipeline needs two ranks or more, and there is one; take parallel=ddp"

_CLEARLY = 1e-9
"""Relative gain below which two placements count as equally fast; the earlier one is kept."""


def place(
    home: Home,
    layers: int,
    rows: int,
    micro_batch: int | None = None,
    keep_all: bool = False,
    least: int = 1,
) -> Pipeline:
    """Return the fastest pipeline of `layers` layers for steps of `rows` rows.

    The micro-batches are those of a run with at most `micro_batch` rows each, or of the fastest
    divisor of `rows` without it. A node that makes the pipeline slower is left out, unless
    `keep_all`; there are at least `least` stages.

    Raises `ModelError` if no placement fits the memory of the ranks.
    """
    if len(home.nodes) < least:
        raise ModelError(TOO_FEW)
    fastest = min((speed.layer.sizes[-1] for speed in home.speeds), default=1)
    fitting = [
        found
        for size in _sizes(rows, micro_batch, fastest)
        if (found := _place(home, layers, rows, size, least, keep_all))
    ]
    if not fitting:
        size = max(micro_batches(rows, micro_batch)) if micro_batch else 1
        if size > 1 and _place(home, layers, rows, 1, least, keep_all):
            raise ModelError(_too_many_rows(size))
        raise ModelError(shortage(home, layers, rows) or _too_many(home, layers))
    best = fitting[0]
    for each in fitting[1:]:
        if each.step_seconds < best.step_seconds * (1 - _CLEARLY):
            best = each
    return best


def _sizes(rows: int, micro_batch: int | None, measured: int) -> list[int]:
    """Return the most rows of a micro-batch to try, ascending."""
    if micro_batch:
        return [max(micro_batches(rows, micro_batch))]
    return [size for size in range(1, min(rows, measured) + 1) if rows % size == 0]


def pipeline(home: Home, placement: Placement, rows: int, micro_batch: int) -> Pipeline:
    """Return `placement` with its predicted speed in steps of `rows` rows."""
    step = _Step(home, placement.layers, rows, max(micro_batches(rows, micro_batch)))
    order = placement.ranks
    return step.pipeline(order, [len(stage.layers) for stage in placement.stages])


def _place(
    home: Home, layers: int, rows: int, micro_batch: int, least: int, keep_all: bool
) -> Pipeline | None:
    """Return the fastest pipeline with this micro-batch, None if nothing fits."""
    step = _Step(home, layers, rows, micro_batch, least)
    search = _every_order if len(home.nodes) <= _ALL_ORDERS else _search
    found = search(step, keep_all)
    return found and step.pipeline(found.order, found.counts)


@dataclass(frozen=True)
class _Found:
    """The best layer counts for an order of ranks."""

    order: tuple[int, ...]
    counts: tuple[int, ...]
    seconds: float


class _Step:
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
        self.layer, self.embedding, self.head = (
            [_seconds(getattr(speed, part), micro_batch) for speed in home.speeds]
            for part in ("layer", "embedding", "head")
        )

    def extra(self, order: Sequence[int]) -> np.ndarray:
        """Return the seconds of each stage beside its layers."""
        extra = np.zeros(len(order))
        extra[0] += self.embedding[order[0]]
        extra[-1] += self.head[order[-1]]
        return extra

    def links(self, order: Sequence[int]) -> tuple[float, ...]:
        """Return the seconds of each link for a micro-batch."""
        pairs = itertools.pairwise(order)
        return tuple(self.home.message(a, b, self.micro_batch) for a, b in pairs)

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
            self.links(order),
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
        room = self.home.rooms[rank]
        low, high = 0, self.layers
        while low < high:
            middle = (low + high + 1) // 2
            need = self.home.need(
                rank, middle, first=first, last=last, in_flight=held, rows=self.micro_batch
            )
            low, high = (middle, high) if need <= room else (low, middle - 1)
        return low

    def counts(self, order: tuple[int, ...]) -> _Found | None:
        """Return the layer counts that finish a step soonest in this order, None if none fits.

        For each possible pace (the seconds of any stage with any number of layers) the layers go to
        the ranks that compute a layer fastest, as many as the pace and the memory allow: no other
        counts with that pace have a smaller sum.
        """
        most = np.array(self.most(order))
        if (
            not self.least <= len(order) <= self.layers
            or not most.all()
            or most.sum() < self.layers
        ):
            return None
        layer = np.array([self.layer[rank] for rank in order])
        extra, links = self.extra(order), self.links(order)
        numbers = np.arange(1, self.layers + 1)
        fastest_link = max(links, default=0.0)
        paces = np.unique(extra + np.outer(numbers, layer))
        # A candidate is the time of a stage itself, so rounding must not push that stage out.
        allowed = np.floor((paces[:, None] * (1 + 1e-12) - extra) / layer).astype(np.int64)
        allowed = np.minimum(np.minimum(allowed, most), self.layers)
        usable = (allowed >= 1).all(1) & (allowed.sum(1) >= self.layers)
        paces, allowed = paces[usable], allowed[usable]
        given = np.ones_like(allowed)
        left = np.full(len(paces), self.layers - len(order))
        for stage in np.argsort(layer, kind="stable"):
            taken = np.minimum(allowed[:, stage] - 1, left)
            given[:, stage] += taken
            left -= taken
        stages = extra + given * layer
        pace = np.maximum(stages.max(1), fastest_link)
        seconds = stages.sum(1) + 2 * sum(links) + (self.micro_batches - 1) * pace
        best = int(np.argmin(seconds))
        return _Found(order, tuple(given[best].tolist()), float(seconds[best]))


def _seconds(speed: Speed, rows: int) -> float:
    """Return the seconds for a micro-batch of `rows`, beyond the measured sizes in proportion."""
    largest = speed.sizes[-1]
    if rows > largest:
        return speed.seconds[-1] * rows / largest
    return float(np.interp(rows, speed.sizes, speed.seconds))


def _better(one: _Found | None, other: _Found | None) -> _Found | None:
    """Return the faster one; `one` unless the other is clearly faster."""
    if one is None or other is None:
        return one or other
    return other if other.seconds < one.seconds * (1 - _CLEARLY) else one


def _every_order(step: _Step, keep_all: bool = False) -> _Found | None:
    """Return the best of all orders of all ranks, and unless `keep_all` of all sets of nodes."""
    nodes = step.home.nodes
    names = list(dict.fromkeys(nodes))
    counts = [len(names)] if keep_all else range(len(names), 0, -1)
    orders = (
        order
        for count in counts
        for chosen in itertools.combinations(names, count)
        for order in itertools.permutations(
            rank for rank, node in enumerate(nodes) if node in chosen
        )
    )
    return functools.reduce(_better, map(step.counts, orders), None)


def _search(step: _Step, keep_all: bool = False) -> _Found | None:
    """Return the best order that a local search from several starts finds.

    A step of the search moves a rank, swaps two, and unless `keep_all` leaves a node out or takes
    one in. It starts from the ranks as given, and from the fastest 1, 2, 3 … and the roomiest 1, 2,
    3 … of the nodes.
    """
    nodes = step.home.nodes
    names = list(dict.fromkeys(nodes))
    ranks = range(len(nodes))

    def mean(values: Sequence[float], node: str) -> float:
        own = [value for value, its in zip(values, nodes, strict=True) if its == node]
        return sum(own) / len(own)

    by_room = sorted(ranks, key=lambda rank: -step.home.rooms[rank])
    fastest = sorted(names, key=lambda node: mean(step.layer, node))
    roomiest = sorted(names, key=lambda node: -mean(step.home.rooms, node))
    starts = [tuple(ranks), tuple(by_room)]
    if not keep_all:
        starts += [
            tuple(rank for rank in by_room if nodes[rank] in order[:count])
            for order in (fastest, roomiest)
            for count in range(1, len(names))
        ]
        starts.append(_roomiest(step))
    found = {start: step.counts(start) for start in starts}
    best = sorted(found, key=lambda start: its.seconds if (its := found[start]) else math.inf)
    return functools.reduce(
        _better, (_climb(step, start, keep_all) for start in best[:_CLIMBS]), None
    )


def _climb(step: _Step, order: tuple[int, ...], keep_all: bool) -> _Found | None:
    """Improve an order until no neighbour is better: fits, has more room, or is faster."""
    found, room = step.counts(order), _room(step, order)
    while True:
        for neighbour in _neighbours(order, step.home.nodes, keep_all):
            other = step.counts(neighbour)
            if found is None:
                better = other is not None or _room(step, neighbour) > room
            else:
                better = _better(found, other) is not found
            if better:
                order, found, room = neighbour, other, _room(step, neighbour)
                break
        else:
            return found


def _room(step: _Step, order: tuple[int, ...]) -> tuple[int, int]:
    """Return the distance of an order from one that fits: minus its ranks without room; layers."""
    most = step.most(order)
    return -most.count(0), sum(most)


def _neighbours(
    order: tuple[int, ...], nodes: Sequence[str], keep_all: bool
) -> Iterator[tuple[int, ...]]:
    """Yield the orders that differ by one rank's place, by two that swap, or by a node."""
    places = range(len(order))
    for a, b in itertools.combinations(places, 2):
        swapped = list(order)
        swapped[a], swapped[b] = swapped[b], swapped[a]
        yield tuple(swapped)
    for a in places:
        without = order[:a] + order[a + 1 :]
        for b in range(len(without) + 1):
            if b not in (a, a - 1):
                yield (*without[:b], order[a], *without[b:])
    if keep_all:
        return
    present = {nodes[rank] for rank in order}
    for node in present if len(present) > 1 else ():
        yield tuple(rank for rank in order if nodes[rank] != node)
    for node in dict.fromkeys(nodes):
        if node not in present:
            ranks = tuple(rank for rank, its in enumerate(nodes) if its == node)
            for b in range(len(order) + 1):
                yield order[:b] + ranks + order[b:]


def _too_many_rows(rows: int) -> str:
    return (
        f"parallel=pipeline: the model fits no placement with micro-batches of {rows} rows, but it "
        "does with one row; take a smaller micro_batch="
    )


def _too_many(home: Home, layers: int) -> str:
    return (
        f"parallel=pipeline: the model's {layers} layers cannot be placed so that each of "
        f"{len(home.nodes)} ranks has room for its own; leave nodes out with -e nodes=, or take "
        "parallel=ddp"
    )


def _label(home: Home, rank: int) -> str:
    """Return the name of a rank for a message: its node, and which of its ranks."""
    same = [each for each, node in enumerate(home.nodes) if node == home.nodes[rank]]
    return home.nodes[rank] + (f" rank {same.index(rank)}" if len(same) > 1 else "")


def shortage(home: Home, layers: int, rows: int) -> str:
    """Return the finding that `layers` layers fit no placement, and by how much, or ''.

    It is judged with micro-batches of one row, and regardless of speed.
    """
    step = _Step(home, layers, rows, 1)
    order = _roomiest(step)
    most = step.most(order)
    held = sum(most)
    if held >= layers:
        return ""
    # A stage in the middle has layers only.
    need = functools.partial(home.need, 0, first=False, last=False, in_flight=1, rows=1)
    lacking = (layers - held) * (need(layers=2) - need(layers=1)) / (1 << 30)
    given = dict(zip(order, most, strict=True))
    ranks = range(len(home.nodes))
    each = ", ".join(f"{_label(home, rank)} {given.get(rank, 0)}" for rank in ranks)
    return (
        f"parallel=pipeline: the model fits no placement over {len(ranks)} "
        f"rank{'s' * (len(ranks) > 1)}. Together they have room for {held} of its {layers} layers "
        f"({each}); the other {layers - held} need about {lacking:.1f} GiB more"
    )


def _roomiest(step: _Step) -> tuple[int, ...]:
    """Return the order with room for most layers, without the ranks that have room for none.

    Of many ranks only that by memory is tried.
    """
    ranks = range(len(step.home.nodes))
    by_room = sorted(ranks, key=lambda rank: -step.home.rooms[rank])
    orders = itertools.permutations(by_room) if len(ranks) <= _ALL_ORDERS else [tuple(by_room)]
    best, held = tuple(by_room), 0
    for order in orders:
        while 0 in (most := step.most(order)) and len(order) > 1:
            order = tuple(rank for rank, fits in zip(order, most, strict=True) if fits) or order[:1]
        if sum(most) > held:
            best, held = order, sum(most)
        if held >= step.layers:
            break
    return best
