"""Placement of the model's layers over the ranks of a run, the same on every rank."""

from __future__ import annotations

from pathlib import Path

from hearth.base.errors import ConfigError
from hearth.config import Run
from hearth.model.divided import config_of
from hearth.plan.placement import Placement
from hearth.plan.split import by_shares, shares_for
from hearth.ranks.world import World


def choose_placement(run: Run, model: Path, world: World) -> Placement:
    """Return the placement of the layers of `model`: as planned, or by the shares of `split`.

    Raises `ConfigError` on all ranks if the model cannot be placed on each of them, `ModelError` if
    it cannot be divided.
    """
    if world.size == 1:
        raise ConfigError(
            "parallel: pipeline needs two ranks or more, and there is one; take parallel=ddp"
        )
    count = config_of(model).get_text_config().num_hidden_layers
    split = run.settings.split
    if run.pipeline:
        ranks, counts = zip(*run.pipeline.stages, strict=True)
        placement = Placement.of(ranks, counts)
    else:
        shares = shares_for(None if isinstance(split, str) else split, world.size)
        placement = Placement.of(*_stages(by_shares(count, shares)))
    idle = [rank for rank in range(world.size) if placement.position(rank) is None]
    if idle:
        names = ", ".join(f"rank {rank} ({world.layout[rank]})" for rank in idle)
        raise ConfigError(
            f"parallel: pipeline gives none of the model's {count} layers to {names}; start the "
            "run without, by hand with fewer ranks (torchrun --nproc-per-node), else with -e nodes="
        )
    return placement


def stage_micro_batch(run: Run) -> int:
    """Return the most rows of a micro-batch: as set, as planned, or one."""
    if run.settings.micro_batch != "auto":
        return run.settings.micro_batch
    return run.pipeline.micro_batch if run.pipeline else 1


def _stages(counts: tuple[int, ...]) -> tuple[list[int], list[int]]:
    """Return the ranks that have layers, in their order, and the number of each."""
    found = [(rank, count) for rank, count in enumerate(counts) if count]
    return [rank for rank, _ in found], [count for _, count in found]
