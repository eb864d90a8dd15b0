"""Decide which nodes a model does not fit, and advise the settings that would make it fit."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hearth.config import Settings
from hearth.config.conflicts import conflicts_of
from hearth.config.settings import shown
from hearth.config.shape import Shape
from hearth.fit.capacity import GIB, Room
from hearth.fit.estimate import Estimate, case_of, estimate, in_common_precision
from hearth.fit.home import Candidate, rooms_by_node, unplaceable

_SHORTEST = 128
"""Least tokens per row that the advice suggests: shorter rows are of no use."""

_NOTHING_HELPS = "no setting would make it fit; take a smaller model (`hearth models`)"
_DIVIDED = "(its layers are divided over the nodes)"
_SHARDED = "(slow: it shards the weights over the nodes)"


def needs(
    settings: Settings, shape: Shape, rooms: Mapping[str, Room], ranks: int = 0
) -> dict[str, Estimate]:
    """Estimate the memory of a rank of each node, by node, if these nodes train together.

    `ranks` is the world size; 0 assumes one per node, the minimum.
    """
    gpus = [bool(room.gpu) for room in rooms.values()]
    several = {"gpus": any(gpus), "all_gpus": all(gpus), "ranks": ranks or len(rooms)}
    settings = in_common_precision(settings, rooms.values())
    return {
        node: estimate(
            shape, case_of(settings, gpu=bool(room.gpu), unified=room.unified, **several)
        )
        for node, room in rooms.items()
    }


def lacking(
    settings: Settings, shape: Shape, rooms: Mapping[str, Room], ranks: int = 0
) -> list[str]:
    """Return the nodes that a model of this `shape` does not fit; `ranks` as for `needs`."""
    found = needs(settings, shape, rooms, ranks)
    return [node for node, need in found.items() if not _fits(need, rooms[node])]


def holding(settings: Settings, shape: Shape, ranks: Sequence[Candidate]) -> list[str]:
    """Return the nodes of `ranks` that such a model fits if they train without the others.

    Without them they may take a precision of fewer or of more bytes. Where GPUs and processors
    that each hold the model could not do so together, they are the GPUs.
    """
    rooms = rooms_by_node(ranks)

    def lack(names: Iterable[str]) -> list[str]:
        training = [rank for rank in ranks if rank.node in names]
        return lacking(settings, shape, rooms_by_node(training), len(training))

    small = lack(rooms)
    able = [[name for name in rooms if name not in small]]
    if settings.holds_all:
        alone = [name for name in rooms if not lack([name])]
        able = [alone, [name for name in alone if rooms[name].gpu], *able]
    return next((names for names in able if names and not lack(names)), [])


def imprecise(settings: Settings, ranks: Sequence[Candidate]) -> dict[str, str]:
    """Return a sentence for each node that cannot compute in the precision of the run, by node."""
    wanted = settings.precision
    return {
        rank.node: f"precision: {wanted} is not possible there; leave such nodes out (-e nodes=…), "
        "or take precision=auto"
        for rank in ranks
        if not rank.room.computes_in(wanted)
    }


def misfits(
    model: str, settings: Settings, shape: Shape, ranks: Sequence[Candidate]
) -> dict[str, str]:
    """Return a sentence for each node that `model` does not fit, by node.

    `ranks` are all of the run; of a node the one with least memory counts.
    """
    rooms = rooms_by_node(ranks)
    found = needs(settings, shape, rooms, len(ranks))
    small = lacking(settings, shape, rooms, len(ranks))
    fitting = holding(settings, shape, ranks) if small else []
    divided = _over_all(settings, shape, ranks) if small else []
    said = {}
    for node in small:
        ways = _advice(node, settings, shape, ranks, fitting) + divided
        to_do = f"it would fit with: {'; '.join(ways)}" if ways else _NOTHING_HELPS
        said[node] = (
            f"{model} {_too_large(found[node], rooms[node])}; {to_do}; fit=warn tries it anyway"
        )
    return said


def unknown(model: str) -> str:
    """Return the notice for a model of unknown shape, whose fit cannot be checked beforehand."""
    return f"{model}: its memory need is unknown, so whether it fits cannot be checked beforehand"


def _fits(need: Estimate, room: Room) -> bool:
    return need.total <= room.size


def _too_large(need: Estimate, room: Room) -> str:
    """Return the reason for a model that needs more memory to train than a rank has."""
    largest = sorted(need.parts.items(), key=lambda part: -part[1])[:3]
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in largest)
    unverified = ", which for GPUs is not verified" if room.gpu else ""
    return (
        f"does not fit: it is estimated to need {need.total / GIB:.1f} GiB ({parts} GiB"
        f"{unverified}), and {room.description}"
    )


def _advice(
    node: str,
    settings: Settings,
    shape: Shape,
    ranks: Sequence[Candidate],
    fitting: Sequence[str],
) -> list[str]:
    """Return ways to make it fit `node`: the fewest changes of settings, then alternatives.

    `fitting` are the nodes that it fits if they train without the others.
    """
    rooms = rooms_by_node(ranks)

    def fits(changes: Mapping[str, Any]) -> bool:
        changed = settings.model_copy(update=dict(changes))
        allowed = not conflicts_of(changed)
        return allowed and _fits(needs(changed, shape, rooms, len(ranks))[node], rooms[node])

    measures = _measures(settings)
    room, ways = rooms[node], list[str]()
    if room.programs and needs(settings, shape, rooms, len(ranks))[node].total <= room.freed:
        ways.append(f"ending what else is on the card ({room.others})")
    ending = len(ways)
    for count in range(1, len(measures) + 1):
        for chosen in itertools.combinations(measures, count):
            changes = {name: value for one in chosen for name, value in one.items()}
            if fits(changes):
                ways.append(" and ".join(_typed(*change) for change in changes.items()))
        if len(ways) > ending:
            break
    left = sum(rank.node in fitting for rank in ranks)
    if left > (settings.parallel == "fsdp"):  # one rank alone shards nothing
        without = "the others" if node in fitting else "the node"
        ways.append(f"leaving {without} out with -e nodes={','.join(fitting)}")
    return ways


def _over_all(settings: Settings, shape: Shape, ranks: Sequence[Candidate]) -> list[str]:
    """Return the way to hold a model over all ranks where one of them cannot, if any."""
    if not (settings.holds_all and settings.lora) or len(ranks) == 1:
        return []
    divided = settings.model_copy(update={"parallel": "pipeline"})
    if not conflicts_of(divided) and not unplaceable(divided, shape, ranks):
        return [f"parallel=pipeline {_DIVIDED}"]
    small = [name for name in ("load_in_4bit", "load_in_8bit") if getattr(settings, name)]
    changes = {"parallel": "fsdp"} | dict.fromkeys(small, False)
    sharded = settings.model_copy(update=changes)
    if conflicts_of(sharded) or lacking(sharded, shape, rooms_by_node(ranks), len(ranks)):
        return []
    return [f"{' and '.join(_typed(*change) for change in changes.items())} {_SHARDED}"]


def _measures(settings: Settings) -> list[dict[str, Any]]:
    """Return the changes of settings that save memory, the least costly first."""
    measures: list[dict[str, Any]] = []
    if settings.micro_batch not in ("auto", 1):
        measures.append({"micro_batch": 1})
    if not settings.gradient_checkpointing:
        measures.append({"gradient_checkpointing": True})
    if not settings.lora:
        measures.append({"lora": True})
    elif not settings.load_in_4bit and settings.holds_all:
        instead = {"load_in_8bit": False} if settings.load_in_8bit else {}
        measures.append({"load_in_4bit": True} | instead)
    if (shorter := settings.at_most().sequence_length // 2) >= _SHORTEST:
        measures.append({"sequence_length": shorter})
    return measures


def _typed(name: str, value: Any) -> str:
    """Format a setting as it is typed: `name=value`."""
    return f"{name}={shown(value)}"
