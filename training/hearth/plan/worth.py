"""Which nodes make the run faster: predicted from measured speeds and links."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hearth.plan.speed import Speed
from hearth.plan.split import by_speed, seconds_of

_ALL_TRIED = 10
"""With up to so many nodes every choice of them is tried."""

_WORTH_JOINING = 0.01
"""Part of the speed that a node must add to be wanted."""


@dataclass(frozen=True)
class Contender:
    """What was measured of one node.

    Attributes:
        name: of the node.
        ranks: the speed of each of its ranks.
        mbit: how fast each other node hears it, in Mbit/s, by name; as far as it was measured.
        milliseconds: to each other node and back, by name.
    """

    name: str
    ranks: tuple[Speed, ...]
    mbit: Mapping[str, float] = field(default_factory=dict)
    milliseconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        """Rows a second of all its ranks."""
        return sum(speed.rows_per_second for speed in self.ranks)


@dataclass(frozen=True)
class Prediction:
    """How a run over some of the nodes would go.

    Attributes:
        nodes: their names.
        compute_seconds: of the slowest rank in a step.
        exchange_seconds: of a step, for the gradients.
        rows_per_second: of all together.
    """

    nodes: tuple[str, ...]
    compute_seconds: float
    exchange_seconds: float
    rows_per_second: float

    @property
    def step_seconds(self) -> float:
        """How long a step takes."""
        return self.compute_seconds + self.exchange_seconds


def exchange_seconds(nodes: Sequence[Contender], size: int) -> float:
    """Return how long the nodes take to sum `size` bytes of gradients, in seconds.

    As a ring: each link carries 2 (n - 1) / n of the bytes in 2 (n - 1) turns, and the slowest sets
    the pace (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms"). A link that was
    not measured is taken for no hindrance, as are those between the ranks of one node.
    """
    names = {node.name for node in nodes}
    speeds = [mbit for node in nodes for peer, mbit in node.mbit.items() if peer in names]
    delays = [each for node in nodes for peer, each in node.milliseconds.items() if peer in names]
    turns = 2 * (len(nodes) - 1)
    in_a_turn = size / len(nodes) / (min(speeds, default=math.inf) * 1e6 / 8)
    return turns * (in_a_turn + max(delays, default=0.0) / 2e3)


def predict(nodes: Sequence[Contender], rows: int, size: int) -> Prediction:
    """Return how steps of `rows` would go on `nodes`, which exchange `size` bytes."""
    speeds = [speed for node in nodes for speed in node.ranks]
    compute = seconds_of(by_speed(rows, speeds), speeds)
    exchange = exchange_seconds(nodes, size)
    return Prediction(
        tuple(node.name for node in nodes), compute, exchange, rows / (compute + exchange)
    )


def fastest_alone(nodes: Sequence[Contender], rows: int) -> Prediction:
    """Return how the run would go on the one node that is fastest by itself."""
    return max((predict([node], rows, 0) for node in nodes), key=_rows_per_second)


def choose(nodes: Sequence[Contender], rows: int, size: int) -> Prediction:
    """Return the fastest choice of `nodes`: all of them, unless without some it is faster."""
    everyone = predict(nodes, rows, size)
    best = max((predict(some, rows, size) for some in _choices(nodes)), key=_rows_per_second)
    keep_all = everyone.rows_per_second * (1 + _WORTH_JOINING) >= best.rows_per_second
    return everyone if keep_all else best


def _choices(nodes: Sequence[Contender]) -> list[list[Contender]]:
    """Return the choices to try: all of few nodes; of many, the fastest ones in turn."""
    if len(nodes) <= _ALL_TRIED:
        return [
            list(some)
            for count in range(1, len(nodes) + 1)
            for some in itertools.combinations(nodes, count)
        ]
    fastest = sorted(nodes, key=lambda node: -node.rows_per_second)
    wanted = [{node.name for node in fastest[:count]} for count in range(1, len(nodes) + 1)]
    return [[node for node in nodes if node.name in names] for names in wanted]


def _rows_per_second(prediction: Prediction) -> float:
    return prediction.rows_per_second
