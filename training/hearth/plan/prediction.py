"""Predict times from measured speeds and links: of steps, of exchanges, of a stop.

From them follows which nodes make a run faster.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hearth.base.text import byte_count, duration
from hearth.plan.speed import Speed
from hearth.plan.split import Division, Plan, by_shares, by_speed, seconds_of, shares_for

EXCHANGED = 3
"""Tensors, each the size of the trainable parameters, exchanged after local steps (`sync_every`):
the parameters' change and both AdamW moments. Any other exchange has one, the gradients."""

_ALL_TRIED = 10
"""Largest number of nodes whose combinations are all tried."""

_WORTH_JOINING = 0.01
"""Part of the speed that a node must add to be included."""

_WORTH_APPROXIMATING = 1 / 3
"""Part of a step that the exchange must take before `sync_every` is advised."""

_SIMULATED = 8
"""When predicting a long round, simulate only its first 8 steps; more barely change the result."""

ADVISED = 16
"""The advised value of `sync_every`."""


@dataclass(frozen=True)
class Contender:
    """Measurements of one node: the speed of each of its ranks, and its links to other nodes.

    `mbit` is the receive rate of each other node from this one, `milliseconds` the round-trip time,
    both by name and only where measured.
    """

    name: str
    ranks: tuple[Speed, ...]
    mbit: Mapping[str, float] = field(default_factory=dict)
    milliseconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        """Rows a second of all its ranks together."""
        return sum(speed.rows_per_second for speed in self.ranks)


@dataclass(frozen=True)
class Traffic:
    """Network traffic between the nodes: `size` bytes, once every `every` steps.

    `with_updates` says that they are the optimizer's too, which need an exchange in every step.
    """

    size: int
    every: int = 1
    with_updates: bool = False

    @classmethod
    def of(
        cls, gradients: int, sync_every: int, compressed: bool = False, muon: bool = False
    ) -> Traffic:
        """Return the traffic of a run whose fp32 gradients have `gradients` bytes.

        With local steps between exchanges, the parameter change and both optimizer moments are
        sent, each as large as the gradients. With `compressed` all is bf16, half the bytes.
        `muon` adds its updates, at most as large as the gradients and never compressed.
        """
        size = gradients * (EXCHANGED if sync_every > 1 else 1)
        return cls((size // 2 if compressed else size) + gradients * muon, sync_every, muon)


@dataclass(frozen=True)
class Prediction:
    """Predicted speed of a run over some of the nodes.

    `compute_seconds` are those of the slowest rank in a step, `exchange_seconds` those of the
    exchange; in a round of local steps both are the mean per step.
    """

    nodes: tuple[str, ...]
    compute_seconds: float
    exchange_seconds: float
    rows_per_second: float

    @property
    def step_seconds(self) -> float:
        """Seconds for one step."""
        return self.compute_seconds + self.exchange_seconds


def exchange_seconds(nodes: Sequence[Contender], size: int) -> float:
    """Return the seconds the nodes need to all-reduce `size` bytes.

    Modelled as a ring: each link carries 2 (n - 1) / n of the bytes in 2 (n - 1) turns, and the
    slowest sets the pace (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms").
    Links that were not measured, and those between ranks of one node, count as no bottleneck.
    """
    names = {node.name for node in nodes}
    speeds = [mbit for node in nodes for peer, mbit in node.mbit.items() if peer in names]
    delays = [each for node in nodes for peer, each in node.milliseconds.items() if peer in names]
    turns = 2 * (len(nodes) - 1)
    in_a_turn = size / len(nodes) / (min(speeds, default=math.inf) * 1e6 / 8)
    return turns * (in_a_turn + max(delays, default=0.0) / 2e3)


def predict(
    nodes: Sequence[Contender], rows: int, traffic: Traffic, divided: Division = by_speed
) -> Prediction:
    """Predict steps of `rows` on `nodes`, shared over their ranks by `divided`."""
    speeds = [speed for node in nodes for speed in node.ranks]
    sizes = (rows,) * min(traffic.every, _SIMULATED)
    compute = seconds_of(divided(sizes, speeds), speeds) / len(sizes)
    exchange = exchange_seconds(nodes, traffic.size) / traffic.every
    return Prediction(
        tuple(node.name for node in nodes), compute, exchange, rows / (compute + exchange)
    )


def fastest_alone(nodes: Sequence[Contender], rows: int) -> Prediction:
    """Return the prediction for the node that is fastest on its own."""
    return max(
        (predict([node], rows, Traffic(0)) for node in nodes), key=lambda each: each.rows_per_second
    )


def choose(nodes: Sequence[Contender], rows: int, traffic: Traffic) -> Prediction:
    """Return the fastest combination of `nodes`: all of them, unless leaving some out is faster."""
    everyone = predict(nodes, rows, traffic)
    best = max(
        (predict(some, rows, traffic) for some in _choices(nodes)),
        key=lambda each: each.rows_per_second,
    )
    keep_all = everyone.rows_per_second * (1 + _WORTH_JOINING) >= best.rows_per_second
    return everyone if keep_all else best


def advised_sync_every(
    nodes: Sequence[Contender], rows: int, traffic: Traffic, divided: Division = by_speed
) -> Prediction | None:
    """Return the prediction for all `nodes` with `sync_every: ADVISED`.

    None unless the exchange takes a large enough part of each step to justify an approximation.
    """
    now = predict(nodes, rows, traffic, divided)
    pays = now.exchange_seconds > now.step_seconds * _WORTH_APPROXIMATING
    if traffic.every > 1 or traffic.with_updates or not pays:
        return None
    return predict(nodes, rows, Traffic.of(traffic.size, ADVISED), divided)


def _choices(nodes: Sequence[Contender]) -> list[list[Contender]]:
    """Return the combinations to try: all for few nodes; for many, the fastest 1, 2, 3 … nodes."""
    if len(nodes) <= _ALL_TRIED:
        return [
            list(some)
            for count in range(1, len(nodes) + 1)
            for some in itertools.combinations(nodes, count)
        ]
    fastest = sorted(nodes, key=lambda node: -node.rows_per_second)
    wanted = [{node.name for node in fastest[:count]} for count in range(1, len(nodes) + 1)]
    return [[node for node in nodes if node.name in names] for names in wanted]


_LEAST = 60.0
"""Minimum grace in seconds where the time of a step was measured."""

_LEAST_UNKNOWN = 900.0
"""Minimum grace in seconds where it was not; a stop that completes sooner does not wait."""

_CHECKPOINT = 30.0
"""Seconds to write a checkpoint, in addition to the time for its bytes."""

_OF_LEARNED = 5
"""Maximum size of a checkpoint relative to the trainable weights: the weights, two numbers of AdamW
for each, the momentum of rounds of local steps, and the best weights so far."""

_GATHERED = 4
"""Maximum size of what stages send for it, likewise: their weights, two numbers of AdamW for each,
and the weights again if they are the best so far."""

_SLOW_LINK = 100.0
"""Mbit/s of a slow link, assumed where none was measured."""

_WRITTEN = 50e6
"""Bytes a second that a slow disk writes, with hashing and flushing; assumed, not measured."""


def stop_grace(
    seconds: float = 0.0,
    measured: bool = False,
    learned: int = 0,
    judging: float = 0.0,
    gathering: float = 0.0,
) -> float:
    """Return the seconds that ranks get to finish their computation and write a checkpoint.

    Three times the `seconds` of a step or round are allowed; they are the full duration if
    `measured`, else only a part. `learned` are the bytes of the trainable weights (0 if unknown),
    `judging` the seconds of a held-out evaluation, which a stop does not interrupt, and `gathering`
    those that the stages of a pipeline take to send each other their parts of a checkpoint.
    """
    checkpoint = _CHECKPOINT + _OF_LEARNED * learned / _WRITTEN
    return max(
        _LEAST if measured else _LEAST_UNKNOWN, 3 * seconds + judging + gathering + checkpoint
    )


def gather_seconds(learned: int, nodes: int, mbit: float | None) -> float:
    """Return the seconds of the broadcasts of all stages' state for a checkpoint.

    `learned` are the bytes of all trainable weights, `mbit` the slowest link between the `nodes`,
    None where it is not known. A broadcast is a tree: a node sends one copy per level at most.
    """
    copies = (nodes - 1).bit_length()
    return _GATHERED * learned * copies * 8 / ((mbit or _SLOW_LINK) * 1e6)


_ASSUMED_MBIT = 1000.0
"""Assumed speed of a home network where no link was measured."""


def fetched_bytes(weights: int, ranks: int) -> float:
    """Return the maximum bytes each rank receives in a micro-batch, of `weights` bytes in all.

    These are the other ranks' parts, once for the forward and once for the backward pass, since no
    rank keeps them in between. (Embeddings and head are fetched once.)
    """
    return 2 * weights * (ranks - 1) / ranks


def fetch_seconds(weights: int, ranks: int, mbit: float | None = None) -> float:
    """Return the seconds to receive `fetched_bytes` at `mbit` Mbit/s, the slowest link if measured.

    Modelled as a ring: every link carries the bytes that one rank receives.
    """
    return fetched_bytes(weights, ranks) / ((mbit or _ASSUMED_MBIT) * 1e6 / 8)


def turns(rows: int, micro_batch: int, split: Sequence[int] | None, ranks: int) -> int:
    """Return the number of micro-batches that `ranks` ranks compute together in a step of `rows`.

    Raises `ConfigError` as `shares_for`.
    """
    divided = by_shares(rows, shares_for(split, ranks))
    return Plan(divided, (micro_batch,) * ranks, together=True).turns


def network_cost(weights: int, ranks: int, mbit: float | None = None) -> str:
    """Return a warning about the network cost; `mbit` is the slowest link, if measured."""
    link = f"{mbit or _ASSUMED_MBIT:.0f} Mbit/s" + (" (assumed)" if mbit is None else "")
    seconds = fetch_seconds(weights, ranks, mbit)
    return (
        f"parallel=fsdp: each of {ranks} ranks keeps its shard of {byte_count(weights)} of weights "
        f"and fetches up to {byte_count(fetched_bytes(weights, ranks))} in every micro-batch: "
        f"{duration(seconds)} at {link}. A larger micro_batch fetches less often; if the model "
        "fits every card, parallel=ddp is far faster"
    )
