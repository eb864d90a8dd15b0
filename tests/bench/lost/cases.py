"""The faults that the bench plays: singly, two at once, and while something else goes on. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations_with_replacement

from support.losses import KINDS, MOMENTS, Case, Fault

IN_A_ROW = 6
"""Of the faults in a row, one in this many is two at once."""


def matrix(nodes: Sequence[str], chance: random.Random) -> list[Case]:
    """Return every kind on every node, with every other kind on another, and in every moment.

    In the last two the nodes are drawn by lot. In a moment the faults are single and double by
    turns, and the node that joins or leaves is any of them, one with a fault of its own included.
    """
    cases = [Case((Fault(kind, node),)) for kind in KINDS for node in nodes]
    for kinds in combinations_with_replacement(KINDS, 2):
        cases.append(Case(_on_nodes(kinds, nodes, chance)))
    kinds = list(KINDS)
    for number, moment in enumerate(MOMENTS[1:]):
        for turn, kind in enumerate(kinds):
            second = [chance.choice(kinds)] if (turn + number) % 2 else []
            faults = _on_nodes([kind, *second], nodes, chance)
            cases.append(Case(faults, moment, _other(moment, nodes, chance)))
    chance.shuffle(cases)
    return cases


def in_a_row(count: int, nodes: Sequence[str], chance: random.Random) -> list[Case]:
    """Return `count` random faults, some of them two at once, in random moments."""
    cases: list[Case] = []
    left = count
    while left > 0:
        double = left > 1 and chance.randrange(IN_A_ROW) == 0
        kinds = chance.sample([*KINDS, *KINDS], 1 + double)
        moment = chance.choice(MOMENTS)
        cases.append(Case(_on_nodes(kinds, nodes, chance), moment, _other(moment, nodes, chance)))
        left -= 1 + double
    return cases


def sittings(cases: Sequence[Case], most: int) -> list[list[Case]]:
    """Divide cases into runs of about equal length, with at most `most` faults each."""
    count = -(-len(cases) // most)
    return [list(cases[number::count]) for number in range(count)]


def _on_nodes(
    kinds: Sequence[str], nodes: Sequence[str], chance: random.Random
) -> tuple[Fault, ...]:
    """Return one fault of each kind, each on another node."""
    places = chance.sample(list(nodes), len(kinds))
    return tuple(Fault(kind, place) for kind, place in zip(kinds, places, strict=True))


def _other(moment: str, nodes: Sequence[str], chance: random.Random) -> str:
    return chance.choice(list(nodes)) if moment in ("join", "leave") else ""
