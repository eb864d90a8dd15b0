"""Placement of the model's layers over the ranks of a run, the same on every rank."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hearth.base.errors import ConfigError, HearthError
from hearth.base.files import read_object
from hearth.config import Run, Settings
from hearth.config.layout import Layout
from hearth.config.planned import PlannedPipeline
from hearth.config.shape import Shape, shape_in
from hearth.fit.by_hand import room_here
from hearth.fit.home import Candidate, home_of, memory_warnings
from hearth.measure.own_layers import layers_here
from hearth.model.divided import config_of
from hearth.plan.place import TOO_FEW, place
from hearth.plan.placement import Placement
from hearth.plan.split import by_shares, shares_for
from hearth.plan.staged import describe_stage
from hearth.ranks.world import World


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
        shares = shares_for(None if isinstance(split, str) else split, world.size)
        stages, micro_batch = tuple(enumerate(by_shares(count, shares))), 1
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
    wanted = run.settings.micro_batch
    return placement, micro_batch if wanted == "auto" else wanted


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
    config = read_object(model / "config.json") or {}
    say = print if world.leads else lambda _: None
    own = Candidate(
        world.node,
        room_here(settings.memory_limit),
        layers_here(run, layout, config, say).speed,
    )
    ranks = TypeAdapter(list[Candidate]).validate_python(world.gather(asdict(own)))
    found: dict[str, Any] = {"findings": []}
    if world.leads:
        size = None if settings.micro_batch == "auto" else settings.micro_batch
        home = home_of(settings, shape, ranks)
        for warning in memory_warnings(home):
            say(warning)
        try:
            best = place(
                home,
                shape.num_hidden_layers,
                settings.global_batch,
                size,
                keep_all=True,
            )
            stages = [(each.rank, len(each.layers)) for each in best.placement.stages]
            found["planned"] = asdict(
                PlannedPipeline(tuple(stages), best.micro_batch, best.step_seconds)
            )
        except HearthError as error:
            found["findings"] = list(error.findings)
    found = world.from_leader(found)
    if found["findings"]:
        raise HearthError(*found["findings"])
    return TypeAdapter(PlannedPipeline).validate_python(found["planned"])
