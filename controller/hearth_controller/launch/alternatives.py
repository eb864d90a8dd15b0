"""The speed that a run would have if its layers were not divided over the nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from hearth.config import Settings
from hearth.config.conflicts import conflicts_of
from hearth.config.shape import Shape
from hearth.fit.capacity import Room, least
from hearth.fit.estimate import adapter_parameters, case_of, in_common_precision
from hearth.fit.misfits import lacking
from hearth.plan.placement import LayerSpeed
from hearth.plan.prediction import Contender, Prediction, Traffic, choose, fetch_seconds, turns
from hearth.plan.speed import Speed
from hearth_controller.launch.answers import LayerTimes, LinkSpeeds


@dataclass(frozen=True)
class MeasuredNode:
    """One node: the speed of its ranks for parts of the model, its memory, links and device."""

    speeds: tuple[LayerSpeed, ...]
    rooms: tuple[Room, ...]
    mbit: Mapping[str, float] = field(default_factory=dict)
    milliseconds: Mapping[str, float] = field(default_factory=dict)
    device: str = ""

    @property
    def room(self) -> Room:
        """The memory that each of its ranks has at least."""
        return least(self.rooms)


def measured_node(
    times: LayerTimes, rooms: Sequence[Room], links: LinkSpeeds, device: str
) -> MeasuredNode:
    """Return a node with its timed layers and its measured links."""
    speeds = tuple(TypeAdapter(LayerSpeed).validate_python(rank["speed"]) for rank in times.layers)
    return MeasuredNode(speeds, tuple(rooms), links.mbit, links.milliseconds, device)


def undivided(settings: Settings, shape: Shape, nodes: Mapping[str, MeasuredNode]) -> Prediction:
    """Return the prediction of `ddp` over the nodes that hold the whole model.

    A layer was timed with more rows at once than the whole model may leave room for.
    """
    layers = shape.num_hidden_layers
    most = _most_rows(settings.model_copy(update={"parallel": "ddp"}), shape, nodes)
    contenders = [
        Contender(
            name,
            tuple(_whole_speed(speed, layers).no_larger_than(most[name]) for speed in node.speeds),
            node.mbit,
            node.milliseconds,
        )
        for name, node in nodes.items()
    ]
    learned = adapter_parameters(shape, settings.lora_rank, settings.lora_targets, settings.dora)
    traffic = Traffic.of(4 * learned, 1, settings.compress != "none")
    return choose(contenders, settings.global_batch, traffic)


def _most_rows(
    settings: Settings, shape: Shape, nodes: Mapping[str, MeasuredNode]
) -> dict[str, int]:
    """Return the most rows at once, by node, that were timed, are allowed, and fit; at least 1."""
    rooms = {name: node.room for name, node in nodes.items()}
    ranks = sum(len(node.speeds) for node in nodes.values())
    sizes = {size for node in nodes.values() for speed in node.speeds for size in speed.layer.sizes}
    if settings.micro_batch != "auto":
        sizes = {size for size in sizes if size <= settings.micro_batch}
    most = dict.fromkeys(nodes, 1)
    for size in sorted(sizes):
        tried = settings.model_copy(update={"micro_batch": size})
        small = lacking(tried, shape, rooms, ranks)
        most |= {name: size for name in nodes if name not in small}
    return most


def _whole_speed(speed: LayerSpeed, layers: int) -> Speed:
    """Return the speed of a rank for the whole model, with the sizes that all parts have."""
    parts = [part for part in (speed.layer, speed.embedding, speed.head) if part]
    sizes = min((part.sizes for part in parts), key=len)
    each = zip(*(part.seconds[: len(sizes)] for part in parts), strict=True)
    return Speed(sizes, tuple(layers * layer + sum(ends) for layer, *ends in each))


def sharded(settings: Settings, shape: Shape, nodes: Mapping[str, MeasuredNode]) -> float | None:
    """Return the most rows a second of `fsdp`, which fetches the weights over the slowest link.

    None where it cannot be had, or where no link was measured.
    """
    changes = {"parallel": "fsdp", "load_in_4bit": False, "load_in_8bit": False}
    rooms = [node.room for node in nodes.values()]
    whole = in_common_precision(settings.model_copy(update=changes), rooms)
    links = [mbit for node in nodes.values() for mbit in node.mbit.values()]
    if conflicts_of(whole) or not links:
        return None
    gpus = [bool(node.room.gpu) for node in nodes.values()]
    ranks = sum(len(node.speeds) for node in nodes.values())
    case = case_of(whole, any(gpus), any(gpus), all(gpus), ranks)
    fetches = turns(settings.global_batch, case.settings.micro_batch, None, ranks)
    seconds = fetches * fetch_seconds(shape.parameters * case.size, ranks, min(links))
    return settings.global_batch / seconds
