"""The ranks that a model can be placed on, from their measurements and the settings of a run."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hearth.base.errors import ConfigError
from hearth.config import Settings
from hearth.config.shape import Shape
from hearth.fit.capacity import Room, least
from hearth.fit.estimate import Case, case_of, hidden_bytes, in_common_precision, stage_estimate
from hearth.plan.place import by_split, crowded, pipeline, shortage
from hearth.plan.placement import Home, LayerSpeed
from hearth.plan.speed import UNKNOWN, micro_batches

ALIKE = LayerSpeed(UNKNOWN, UNKNOWN, UNKNOWN)
"""Speed of an unmeasured rank: only the memory then decides whether a model can be placed."""

_ENLARGING, _ENLARGEMENTS = 1.1, 100
"""Factor that enlarges insufficient memory in each attempt, and the most attempts."""


@dataclass(frozen=True)
class Candidate:
    """One rank: its node, memory and measured speed."""

    node: str
    room: Room
    speed: LayerSpeed = ALIKE


def rooms_by_node(ranks: Iterable[Candidate]) -> dict[str, Room]:
    """Return the memory that each rank of a node has at least, by node."""
    rooms: dict[str, list[Room]] = {}
    for rank in ranks:
        rooms.setdefault(rank.node, []).append(rank.room)
    return {node: least(each) for node, each in rooms.items()}


@dataclass(frozen=True)
class Links:
    """Measured links: Mbit/s and milliseconds to and fro, from one node to another, by name."""

    mbit: Mapping[str, Mapping[str, float]]
    milliseconds: Mapping[str, Mapping[str, float]]

    def seconds(self, sender: str, receiver: str, size: float) -> float:
        """Return the seconds that `size` bytes take beyond the delay; 0 where nothing was measured.

        Within a node, too, they are 0.
        """
        if sender == receiver:
            return 0.0
        return size * 8 / (self.mbit.get(sender, {}).get(receiver, math.inf) * 1e6)

    def delay(self, sender: str, receiver: str) -> float:
        """Return the seconds that any message takes; 0 where nothing was measured."""
        return self.milliseconds.get(sender, {}).get(receiver, 0.0) / 2e3


NO_LINKS = Links({}, {})


def unplaceable(settings: Settings, shape: Shape, ranks: Sequence[Candidate]) -> str:
    """Return the finding that a model of this `shape` fits no placement over `ranks`, or ''.

    With a `split` the only placement is that of its shares. `fit: warn` changes nothing in it.
    """
    if not shape.family.divides:
        return (
            f"parallel=pipeline cannot divide this kind of model ({shape.model_type}); take "
            "parallel=ddp or parallel=fsdp"
        )
    settings = settings.at_most()
    home = home_of(settings.model_copy(update={"fit": "refuse"}), shape, ranks)
    layers, rows = shape.num_hidden_layers, settings.global_batch
    if (finding := shortage(home, layers, rows)) or settings.split == "auto":
        return finding
    try:
        placement = by_split(home, layers, settings.split)
    except ConfigError:
        return ""  # no matter of memory: `by_split` says it where layers are placed
    return "; ".join(crowded(home, pipeline(home, placement, rows, typed_rows(settings))))


def typed_rows(settings: Settings) -> int | None:
    """Return the typed `micro_batch`, None for `auto`."""
    return None if settings.micro_batch == "auto" else settings.micro_batch


def too_small(settings: Settings, shape: Shape, ranks: Sequence[Candidate]) -> list[str]:
    """Return the nodes with a rank that has no room for a single layer."""
    home = home_of(settings, shape, ranks)
    found = [
        each.node
        for rank, each in enumerate(ranks)
        if home.need(rank, 1, first=False, last=False, in_flight=1, rows=1) > home.rooms[rank]
    ]
    return list(dict.fromkeys(found))


def home_of(
    settings: Settings, shape: Shape, ranks: Sequence[Candidate], links: Links = NO_LINKS
) -> Home:
    """Return the home that `ranks` make for a model of this `shape`.

    With `fit: warn` their memory counts as larger, all of it by the same factor, where it does not
    suffice: the shortage is then spread over all of them, unless `split` gives the layers.
    """
    gpus = [bool(rank.room.gpu) for rank in ranks]
    settings = in_common_precision(settings.at_most(), (rank.room for rank in ranks))

    @functools.cache
    def case(rank: int, rows: int) -> Case:
        changes = {"parallel": "pipeline", "micro_batch": rows}
        return case_of(
            settings.model_copy(update=changes),
            gpu=gpus[rank],
            gpus=any(gpus),
            all_gpus=all(gpus),
            ranks=len(ranks),
            unified=ranks[rank].room.unified,
        )

    def need(
        rank: int, layers: int, *, first: bool, last: bool, in_flight: int, rows: int
    ) -> float:
        return stage_estimate(
            shape, case(rank, rows), layers, first=first, last=last, in_flight=in_flight
        ).total

    # Of stages of unlike precision there is none: all ranks take one.
    row = settings.sequence_length * hidden_bytes(shape, case(0, 1))
    home = Home(
        [rank.node for rank in ranks],
        [rank.speed for rank in ranks],
        [rank.room.size for rank in ranks],
        [[links.seconds(a.node, b.node, row) for b in ranks] for a in ranks],
        need,
        [[links.delay(a.node, b.node) for b in ranks] for a in ranks],
    )
    enlarges = settings.fit == "warn" and settings.split == "auto"
    return _enlarged(home, settings, shape) if enlarges else home


def memory_warnings(home: Home) -> list[str]:
    """Return a warning if `fit: warn` has enlarged the memory of this home, else nothing."""
    if home.enlarged == 1:
        return []
    return [
        f"WARNING: fit=warn: the layers are placed as if every rank had {home.enlarged:.1f} times "
        "its memory; ranks that run out of it take fewer rows at once, or end the run"
    ]


def _enlarged(home: Home, settings: Settings, shape: Shape) -> Home:
    """Return `home` with as much more memory as the model needs there, with a typed micro-batch."""
    typed = typed_rows(settings)
    rows = max(micro_batches(settings.global_batch, typed)) if typed else 1
    larger = home
    for step in range(_ENLARGEMENTS):
        factor = _ENLARGING**step
        larger = replace(home, rooms=[factor * room for room in home.rooms], enlarged=factor)
        if not shortage(larger, shape.num_hidden_layers, settings.global_batch, rows):
            break
    return larger
