"""Search for the order of the ranks, and the set of nodes, that finish a step soonest."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence

from hearth.plan.layer_counts import CLEARLY, Step, TimedCounts, is_faster

_ALL_ORDERS = 5
"""Largest number of ranks whose subsets are tried in every order."""

_CLIMBS = 3
"""Number of starts, the best ones, of the search for many ranks."""


def fastest_order(step: Step, keep_all: bool = False) -> TimedCounts | None:
    """Return the fastest order found, None if none fits.

    Unless `keep_all`, nodes that make it slower are left out.
    """
    search = every_order if len(step.home.nodes) <= _ALL_ORDERS else local_search
    return search(step, keep_all)


def _better(one: TimedCounts | None, other: TimedCounts | None) -> TimedCounts | None:
    """Return the faster one; `one` unless the other is clearly faster."""
    if one is None or other is None:
        return one or other
    return other if is_faster(other.seconds, one.seconds) else one


def every_order(step: Step, keep_all: bool = False) -> TimedCounts | None:
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
    return step.fastest(itertools.chain.from_iterable(map(step.candidates, orders)))


def local_search(step: Step, keep_all: bool = False) -> TimedCounts | None:
    """Return the best order that a local search from several starts finds.

    A step of the search moves a rank, swaps two, and unless `keep_all` leaves a node out or takes
    one in. It starts from the ranks as given, and from the fastest 1, 2, 3 … and the roomiest 1, 2,
    3 … of the nodes.
    """
    nodes = step.home.nodes
    names = list(dict.fromkeys(nodes))
    ranks = range(len(nodes))

    def mean(values: Sequence[float], node: str) -> float:
        own = [value for value, other in zip(values, nodes, strict=True) if other == node]
        return sum(own) / len(own)

    by_room = sorted(ranks, key=lambda rank: -step.home.rooms[rank])
    fastest = sorted(names, key=lambda node: mean(step.layer, node))
    largest = sorted(names, key=lambda node: -mean(step.home.rooms, node))
    starts = [tuple(ranks), tuple(by_room)]
    if not keep_all:
        starts += [
            tuple(rank for rank in by_room if nodes[rank] in order[:count])
            for order in (fastest, largest)
            for count in range(1, len(names))
        ]
        starts.append(roomiest(step))
    found = {start: step.counts(start) for start in filter(None, starts)}

    def seconds(start: tuple[int, ...]) -> float:
        counts = found[start]
        return counts.seconds if counts else math.inf

    best = sorted(found, key=seconds)
    return functools.reduce(
        _better, (_climb(step, start, keep_all) for start in best[:_CLIMBS]), None
    )


def _climb(step: Step, order: tuple[int, ...], keep_all: bool) -> TimedCounts | None:
    """Improve an order until no neighbour is better: fits, has more room, or is faster."""
    found, room = step.counts(order), _room(step, order)
    while True:
        within = found.seconds * (1 - CLEARLY) if found else math.inf
        for neighbour in _neighbours(order, step.home.nodes, keep_all):
            other = step.counts(neighbour, within)
            better = other is not None or (not found and _room(step, neighbour) > room)
            if better:
                order, found, room = neighbour, other, _room(step, neighbour)
                break
        else:
            return found


def _room(step: Step, order: tuple[int, ...]) -> tuple[int, int]:
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
    present = dict.fromkeys(nodes[rank] for rank in order)
    for node in present if len(present) > 1 else ():
        yield tuple(rank for rank in order if nodes[rank] != node)
    for node in dict.fromkeys(nodes):
        if node not in present:
            ranks = tuple(rank for rank, other in enumerate(nodes) if other == node)
            for b in range(len(order) + 1):
                yield order[:b] + ranks + order[b:]


def roomiest(step: Step) -> tuple[int, ...]:
    """Return the order with room for most layers, without nodes with a rank too small for one.

    It is empty if no node is left. Of many ranks only that by memory is tried.
    """
    nodes, rooms = step.home.nodes, step.home.rooms
    by_room = sorted(range(len(nodes)), key=lambda rank: -rooms[rank])
    orders = itertools.permutations(by_room) if len(nodes) <= _ALL_ORDERS else [tuple(by_room)]
    best: tuple[int, ...] = ()
    held = 0
    for order in orders:
        while 0 in (most := step.most(order)):
            full = [rank for rank, fits in zip(order, most, strict=True) if not fits]
            smallest = nodes[min(full, key=rooms.__getitem__)]
            order = tuple(rank for rank in order if nodes[rank] != smallest)
        if sum(most) > held:
            best, held = order, sum(most)
        if held >= step.layers:
            break
    return best
