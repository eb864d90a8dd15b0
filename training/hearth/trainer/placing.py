"""Placement of the model's layers over the ranks of a run, the same on every rank."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hearth.base.errors import ConfigError, ModelError
from hearth.base.files import read_object
from hearth.config import Run, Settings
from hearth.config.layout import Layout
from hearth.config.run import PlannedPipeline
from hearth.config.shape import Shape, shape_in
from hearth.fit.by_hand import room_here
from hearth.fit.home import ALIKE, Candidate, home_of, memory_warnings, typed_rows
from hearth.model.divided import config_of
from hearth.node.speed import layers_here
from hearth.plan.place import TOO_FEW, crowded, pipeline, place
from hearth.plan.placement import Home, Placement, describe_stage
from hearth.plan.split import layer_counts_for
from hearth.ranks.world import World
from hearth.trainer.planning import by_leader


def choose_placement(run: Run, layout: Layout, model: Path, world: World) -> tuple[Placement, int]:
    """Return the placement of the layers of `model`, and the most rows of a micro-batch.

    They are as the controller has planned, else by the shares of `split`, else by the speeds of the
    ranks, which are measured now if need be.

    Raises `ConfigError` on all ranks if the model cannot be placed on each of them, `ModelError` if
    it cannot be divided or fits no memory.
    """
    if world.size == 1:
        raise ConfigError(TOO_FEW)
    count = config_of(model).get_text_config().num_hidden_layers
    split, shape = run.settings.split, shape_in(model)
    if run.pipeline:
        stages, micro_batch = run.pipeline.stages, run.pipeline.micro_batch
    elif split == "auto" and shape:
        planned = _by_speed(run, layout, model, world, shape)
        stages, micro_batch = planned.stages, planned.micro_batch
    else:
        stages, micro_batch = tuple(enumerate(layer_counts_for(split, count, world.size))), 1
    ranks, counts = zip(*((rank, layers) for rank, layers in stages if layers), strict=True)
    if max(ranks) >= world.size or sum(counts) != count:
        raise ConfigError(
            f"parallel: run.yml places {sum(counts)} layers on {len(ranks)} ranks, and this model "
            f"has {count} and the run {world.size}; resume the run, which places its layers anew"
        )
    placement = Placement.of(ranks, counts)
    idle = [rank for rank in range(world.size) if placement.position(rank) is None]
    if idle:
        names = ", ".join(f"rank {rank} ({world.layout[rank]})" for rank in idle)
        raise ConfigError(
            f"parallel: pipeline gives none of the model's {count} layers to {names}; start the "
            "run without, by hand with fewer ranks (torchrun --nproc-per-node), else with -e nodes="
        )
    if shape and not run.pipeline and split != "auto":
        micro_batch = _rows_that_fit(run, layout, model, world, shape, placement)
    return placement, typed_rows(run.settings) or micro_batch


def check_all_learn(placement: Placement, settings: Settings, world: World, learns: bool) -> None:
    """Raise `ConfigError` on all ranks if a stage has no weights that learn."""
    said = world.gather(learns)
    idle = [
        f"{describe_stage(stage, world.layout[stage.rank])} of {placement.layers}"
        for stage in placement.stages
        if not said[stage.rank]
    ]
    if idle:
        targets = settings.lora_targets
        named = targets if isinstance(targets, str) else ", ".join(targets)
        raise ConfigError(
            f"lora_targets: {named} names nothing in the layers of {'; '.join(idle)}, and every "
            "stage of parallel=pipeline has to learn; name modules that all layers have, or take "
            "parallel=ddp"
        )


def _by_speed(run: Run, layout: Layout, model: Path, world: World, shape: Shape) -> PlannedPipeline:
    """Return the fastest pipeline that has all ranks, by their measured speeds and their memory.

    The leader places the layers: processors of other kinds may round other figures.
    """
    settings = run.settings
    home = _measured_home(run, layout, model, world, shape)

    def planned() -> dict[str, Any]:
        for warning in memory_warnings(home):
            print(warning)
        best = place(
            home,
            shape.num_hidden_layers,
            settings.global_batch,
            typed_rows(settings),
            keep_all=True,
        )
        stages = tuple((each.rank, len(each.layers)) for each in best.placement.stages)
        return asdict(PlannedPipeline(stages, best.micro_batch, best.step_seconds))

    return TypeAdapter(PlannedPipeline).validate_python(by_leader(world, planned, ModelError))


def _rows_that_fit(
    run: Run, layout: Layout, model: Path, world: World, shape: Shape, placement: Placement
) -> int:
    """Return the most rows of a micro-batch that the stages of `placement` have room for.

    With `micro_batch: auto` they are measured to be the fastest ones. With `fit: warn` that is one
    row: the measurement, too, would need memory that may not be there.

    Raises `ModelError` on all ranks if not even one row fits a stage.
    """
    settings = run.settings
    measures = typed_rows(settings) is None and settings.fit == "refuse"
    home = _measured_home(run, layout, model, world, shape, measures)

    def fitting() -> int:
        found = pipeline(home, placement, settings.global_batch, typed_rows(settings))
        findings = crowded(home, found)
        if findings and settings.fit == "refuse":
            raise ModelError(*findings)
        for finding in findings:
            print(f"WARNING: {finding}")
        return found.micro_batch

    return int(by_leader(world, fitting, ModelError))


def _measured_home(
    run: Run, layout: Layout, model: Path, world: World, shape: Shape, measures: bool = True
) -> Home:
    """Return the home of the run's ranks, with the speed of each if one `measures`."""
    config = read_object(model / "config.json") or {}
    say = print if world.leads else lambda _: None
    speed = layers_here(run, layout, config, say).speed if measures else ALIKE
    own = Candidate(world.node, room_here(run.settings.memory_limit), speed)
    ranks = TypeAdapter(list[Candidate]).validate_python(world.gather(asdict(own)))
    return home_of(run.settings, shape, ranks)
