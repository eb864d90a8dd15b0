"""Place the layers of a model over the nodes that were measured; describe the speed. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.errors import HearthError, LaunchError, ModelError
from hearth.base.text import counted
from hearth.config import Settings, in_parallel, in_precision, run_of
from hearth.config.run import PlannedPipeline
from hearth.config.shape import Shape
from hearth.fit.estimate import adapter_parameters
from hearth.fit.home import Candidate, Links, home_of, memory_warnings, typed_rows
from hearth.plan.place import by_split, crowded, pipeline, place
from hearth.plan.placement import Home, Pipeline, Placement, describe_layers
from hearth.plan.prediction import Prediction, gather_seconds
from hearth_controller.launch.alternatives import MeasuredNode, sharded, undivided
from hearth_controller.launch.request import described

_WORTH_DIVIDING = 1.01
"""Least gain of a pipeline over the nodes that hold the whole model, which share the rows in place
and go on without each other."""


def with_parallel(
    run: Mapping[str, Any], parallel: str, planned: PlannedPipeline | None = None
) -> dict[str, Any]:
    """Return the facts about `run` with `parallel` resolved, and its planned pipeline."""
    return {**run, **described(in_parallel(run_of(run["file"], "the run"), parallel, planned))}


def place_run(
    run: Mapping[str, Any], shape: Shape, nodes: Mapping[str, MeasuredNode]
) -> dict[str, Any]:
    """Return the `run` with its pipeline planned, or with `ddp` where that is faster; and `say`.

    `nodes` are those that were asked for, in order. The run keeps those that make it faster
    (`requested`).

    Raises `LaunchError` if the model fits no placement.
    """
    settings = Settings.model_validate(run["settings"]).at_most()
    home = _home(settings, shape, nodes)
    everyone = run["nodes"] != ["auto"]
    whole = None
    # Shares are meant for the ranks of all nodes.
    if run["whole_on"] and not everyone and not run["resumes"] and not run["split"]:
        wholly = Settings.model_validate(_in_own_precision(run)["settings"]).at_most()
        whole = undivided(wholly, shape, {name: nodes[name] for name in run["whole_on"]})
    try:
        found = _placed(settings, home, shape.num_hidden_layers, everyone)
    except HearthError as error:
        if whole is None:
            raise LaunchError(*error.findings) from error
        return _as_ddp(run, whole, None, settings)
    if whole and whole.rows_per_second * _WORTH_DIVIDING >= found.rows_per_second:
        return _as_ddp(run, whole, found, settings)
    names = [name for name in nodes if name in {home.nodes[rank] for rank in found.placement.ranks}]
    small = [f"WARNING: {finding}" for finding in crowded(home, found)]
    lines = [*memory_warnings(home), *small, *_describe_nodes(found, home, nodes)]
    if _was_auto(run, "parallel"):
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
    return {
        "run": with_parallel(run, "pipeline", planned)
        | {"requested": names, "parts": _parts(found.placement, home)}
        | _checkpoint(settings, shape, {name: nodes[name] for name in names}),
        "say": "\n".join(f"  {line}" for line in lines),
    }


def _checkpoint(
    settings: Settings, shape: Shape, nodes: Mapping[str, MeasuredNode]
) -> dict[str, Any]:
    """Return the bytes of all trainable weights, and the seconds to gather a checkpoint."""
    learned = 4 * adapter_parameters(
        shape, settings.lora_rank, settings.lora_targets, settings.dora
    )
    links = [mbit for node in nodes.values() for peer, mbit in node.mbit.items() if peer in nodes]
    return {
        "learned": learned,
        "gathering": gather_seconds(learned, len(nodes), min(links, default=None)),
    }


def _was_auto(run: Mapping[str, Any], name: str) -> bool:
    """Return whether the setting `name` was resolved from `auto`."""
    return run_of(run["file"], "the run").origins.get(name) == "auto"


def _in_own_precision(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the run with `precision=auto` again, if it was resolved for other nodes as well."""
    if not _was_auto(run, "precision"):
        return run
    return {**run, **described(in_precision(run_of(run["file"], "the run"), "auto"))}


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


def _as_ddp(
    run: Mapping[str, Any], whole: Prediction, divided: Pipeline | None, settings: Settings
) -> dict[str, Any]:
    """Return the run on the nodes that hold the whole model; no pipeline fits without `divided`."""
    names = [name for name in run["requested"] if name in run["whole_on"]]
    others = [name for name in run["requested"] if name not in names]
    tokens = settings.sequence_length
    say = (
        f"  parallel=auto: ddp on {', '.join(names)}, about "
        f"{whole.rows_per_second * tokens:.0f} tokens/s; parallel=pipeline over all nodes "
    )
    left_out = f"  LEFT OUT: {', '.join(others)}, which cannot hold the whole model with them"
    if divided:
        say += f"would come to {divided.rows_per_second * tokens:.0f}"
        left_out += " (-e nodes=all takes all nodes, with parallel=pipeline)"
    else:
        say += "does not fit"
    say += f"\n{left_out}"
    alone = with_parallel(_in_own_precision(run), "ddp") | {"requested": names}
    return {"run": alone, "say": say}


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
            f"ddp on {', '.join(whole.nodes)}, which can hold the whole model, would come to about "
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
        f"{found.step_seconds:.2f} s, in {found.bubble:.0%} of which the slowest stage waits"
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
        return f"LEFT OUT: {', '.join(left_out)}, to which split={shares} gives no layer"
    try:
        with_all = f"{_placed(settings, home, layers, True).step_seconds:.2f} s"
    except ModelError:
        return f"LEFT OUT: {', '.join(left_out)}, which has no room for a layer"
    return (
        f"LEFT OUT: {', '.join(left_out)}. With all nodes a step would take {with_all}, without "
        f"{found.step_seconds:.2f} s (-e nodes=all takes them all the same)"
    )
