"""Place the layers of a model over the nodes that were measured; compare other ways. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from hearth.base.errors import HearthError, LaunchError, ModelError
from hearth.base.text import counted
from hearth.config import Settings, in_precision
from hearth.config.conflicts import conflicts_of
from hearth.config.run import PlannedPipeline
from hearth.config.shape import Shape
from hearth.fit.capacity import Room, least
from hearth.fit.estimate import adapter_parameters, case_of, in_common_precision
from hearth.fit.home import Candidate, Links, home_of, memory_warnings, typed_rows
from hearth.fit.misfits import lacking
from hearth.plan.place import by_split, crowded, pipeline, place
from hearth.plan.placement import Home, LayerSpeed, Pipeline, Placement, describe_layers
from hearth.plan.prediction import (
    Contender,
    Prediction,
    Traffic,
    choose,
    fetch_seconds,
    gather_seconds,
    turns,
)
from hearth.plan.speed import Speed
from hearth_controller.launch.answers import LayerTimes, LinkSpeeds
from hearth_controller.launch.request import LaunchRequest, PlacedLayers

_WORTH_DIVIDING = 1.01
"""Least gain of a pipeline over the nodes that hold the whole model, which share the rows in place
and go on without each other."""


@dataclass(frozen=True)
class Placing:
    """A run whose layers are placed, or `ddp` where that is faster, and the text about it."""

    request: LaunchRequest
    say: str


def place_run(request: LaunchRequest, shape: Shape, nodes: Mapping[str, MeasuredNode]) -> Placing:
    """Plan the pipeline of a run, or turn it to `ddp` where that is faster.

    `nodes` are those that were asked for, in order. The run keeps those that make it faster
    (`requested`).

    Raises `LaunchError` if the model fits no placement.
    """
    settings = request.at_most
    home = _home(settings, shape, nodes)
    everyone = request.options.nodes != ("auto",)
    whole = None
    # Shares are meant for the ranks of all nodes.
    if request.whole_on and not everyone and not request.resumes and not request.shares:
        wholly = _in_own_precision(request).at_most
        whole = undivided(wholly, shape, {name: nodes[name] for name in request.whole_on})
    try:
        found = _placed(settings, home, shape.num_hidden_layers, everyone)
    except HearthError as error:
        if whole is None:
            raise LaunchError(*error.findings) from error
        return _as_ddp(request, whole, None)
    if whole and whole.rows_per_second * _WORTH_DIVIDING >= found.rows_per_second:
        return _as_ddp(request, whole, found)
    names = [name for name in nodes if name in {home.nodes[rank] for rank in found.placement.ranks}]
    small = [f"WARNING: {finding}" for finding in crowded(home, found)]
    lines = [*memory_warnings(home), *small, *_describe_nodes(found, home, nodes)]
    if request.was_auto("parallel"):
        lines.append(_reason(whole, sharded(settings, shape, nodes), settings))
    lines.append(_describe_speed(found, settings))
    if unmeasured := _unmeasured(found.placement, home, nodes):
        lines.append(
            f"not measured: the links {', '.join(unmeasured)}. They count as taking no time, so "
            "the run may be slower than predicted"
        )
    if left_out := [name for name in nodes if name not in names]:
        lines.append(_describe_left_out(found, left_out, settings, home, shape.num_hidden_layers))
    planned = PlannedPipeline(
        _renumbered(found.placement, home, names), found.micro_batch, found.step_seconds
    )
    learned = 4 * adapter_parameters(
        shape, settings.lora_rank, settings.lora_targets, settings.dora
    )
    links = [mbit for name in names for peer, mbit in nodes[name].mbit.items() if peer in names]
    gathering = gather_seconds(learned, len(names), min(links, default=None))
    placed = PlacedLayers(_parts(found.placement, home), learned, gathering)
    divided = request.with_parallel("pipeline", planned)
    return Placing(
        replace(divided, requested=tuple(names), placed=placed),
        "\n".join(f"  {line}" for line in lines),
    )


def _in_own_precision(request: LaunchRequest) -> LaunchRequest:
    """Return the run with `precision=auto` again, if it was resolved for other nodes as well."""
    if not request.was_auto("precision"):
        return request
    return replace(request, run=in_precision(request.training, "auto"))


def _home(settings: Settings, shape: Shape, nodes: Mapping[str, MeasuredNode]) -> Home:
    ranks = [
        Candidate(name, room, speed)
        for name, node in nodes.items()
        for room, speed in zip(node.rooms, node.speeds, strict=True)
    ]
    links = Links(
        {name: node.mbit for name, node in nodes.items()},
        {name: node.milliseconds for name, node in nodes.items()},
    )
    return home_of(settings, shape, ranks, links)


def _placed(settings: Settings, home: Home, layers: int, everyone: bool) -> Pipeline:
    """Return the fastest pipeline, or the one with the shares of `split`.

    Raises `ModelError` if the model does not fit, and `ConfigError` as `by_split`.
    """
    rows, micro_batch = settings.global_batch, typed_rows(settings)
    if settings.split == "auto":
        return place(home, layers, rows, micro_batch, everyone, least=2)
    found = pipeline(home, by_split(home, layers, settings.split), rows, micro_batch)
    if settings.fit == "refuse" and (findings := crowded(home, found)):
        raise ModelError(*findings)
    return found


def _as_ddp(request: LaunchRequest, whole: Prediction, divided: Pipeline | None) -> Placing:
    """Return the run on the nodes that hold the whole model; no pipeline fits without `divided`."""
    names = [name for name in request.requested if name in request.whole_on]
    others = [name for name in request.requested if name not in names]
    tokens = request.at_most.sequence_length
    say = (
        f"  parallel=auto: ddp on {', '.join(names)}, about "
        f"{whole.rows_per_second * tokens:.0f} tokens/s; parallel=pipeline over all nodes "
    )
    left_out = f"  LEFT OUT: {', '.join(others)}, which cannot hold the whole model with them"
    if divided:
        say += f"would reach {divided.rows_per_second * tokens:.0f}"
        left_out += " (-e nodes=all takes all nodes, with parallel=pipeline)"
    else:
        say += "does not fit"
    alone = _in_own_precision(request).with_parallel("ddp")
    return Placing(replace(alone, requested=tuple(names)), f"{say}\n{left_out}")


def _renumbered(
    placement: Placement, home: Home, names: Sequence[str]
) -> tuple[tuple[int, int], ...]:
    """Return rank and layers of each stage, where only the ranks of `names` have numbers."""
    kept = [rank for rank, node in enumerate(home.nodes) if node in names]
    return tuple((kept.index(stage.rank), len(stage.layers)) for stage in placement.stages)


def _parts(placement: Placement, home: Home) -> dict[str, list[list[int]]]:
    """Return the first layer of each stage and the one after its last, by the node."""
    parts: dict[str, list[list[int]]] = {}
    for stage in placement.stages:
        layers = [stage.layers.start, stage.layers.stop]
        parts.setdefault(home.nodes[stage.rank], []).append(layers)
    return parts


def _unmeasured(placement: Placement, home: Home, nodes: Mapping[str, MeasuredNode]) -> list[str]:
    """Return the links between stages, there and back, whose speed is not known."""
    there = itertools.pairwise(home.nodes[rank] for rank in placement.ranks)
    ways = [way for a, b in there for way in ((a, b), (b, a))]
    return [
        f"{sender} to {receiver}"
        for sender, receiver in ways
        if sender != receiver and receiver not in nodes[sender].mbit
    ]


def _describe_nodes(found: Pipeline, home: Home, nodes: Mapping[str, MeasuredNode]) -> list[str]:
    """Describe each stage in the order of the activations: node, device, layers, time, link."""
    used = [home.nodes[rank] for rank in found.placement.ranks]
    wide, most = max(map(len, used)), max(len(nodes[name].device) for name in used)
    links = [*found.link_seconds, None]
    lines = []
    for stage, seconds, link, name in zip(
        found.placement.stages, found.stage_seconds, links, used, strict=True
    ):
        onward = f", {link:.2f} s to send it on" if link and link >= 0.005 else ""
        lines.append(
            f"{name:<{wide}}  {nodes[name].device:<{most}}  {describe_layers(stage)} of "
            f"{found.placement.layers}, {seconds:.2f} s a micro-batch{onward}"
        )
    return lines


def _reason(whole: Prediction | None, fetched: float | None, settings: Settings) -> str:
    """Return why `auto` has become `pipeline`, with the speed of what else could be had.

    `fetched` are the rows a second that the links allow `fsdp`, if it can be had.
    """
    tokens = settings.sequence_length
    why = "not every node can hold the whole model"
    if whole is not None:
        why = (
            f"ddp on {', '.join(whole.nodes)}, which can hold the whole model, would reach about "
            f"{whole.rows_per_second * tokens:.0f} tokens/s"
        )
    if fetched is not None:
        bound = fetched * tokens
        said = f"{bound:.{0 if bound >= 10 else 1}f} tokens/s"
        why += f" (the links allow parallel=fsdp at most {said})"
    return f"parallel=auto: pipeline, since {why}"


def _describe_speed(found: Pipeline, settings: Settings) -> str:
    rows = counted(found.micro_batch, "row")
    return (
        f"parallel=pipeline: {found.rows_per_second * settings.sequence_length:.0f} tokens/s with "
        f"full rows; a step of {found.micro_batches} micro-batches of {rows} takes "
        f"{found.step_seconds:.2f} s; the slowest stage waits {found.bubble:.0%} of it"
    )


def _describe_left_out(
    found: Pipeline, left_out: Sequence[str], settings: Settings, home: Home, layers: int
) -> str:
    """Return the nodes that are left out, and what a step would take with them."""
    if len(home.nodes) > layers:
        return (
            f"LEFT OUT: {', '.join(left_out)}, since the model's {layers} layers do not go round "
            f"{len(home.nodes)} ranks"
        )
    if not isinstance(settings.split, str):
        shares = ":".join(map(str, settings.split))
        return f"LEFT OUT: {', '.join(left_out)}: split={shares} gives them no layer"
    try:
        with_all = f"{_placed(settings, home, layers, True).step_seconds:.2f} s"
    except ModelError:
        return f"LEFT OUT: {', '.join(left_out)}, which has no room for a layer"
    return (
        f"LEFT OUT: {', '.join(left_out)}. With all nodes a step would take {with_all}, without "
        f"{found.step_seconds:.2f} s (-e nodes=all takes them all the same)"
    )


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
