"""Model loading by `parallel`: each rank holds the whole model (`ddp`) or a shard (`fsdp`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hearth.config import Settings
from hearth.model.backend import TrainableModel
from hearth.model.load import load_model
from hearth.model.sharded import load_sharded, weight_bytes
from hearth.plan.planner import Planner
from hearth.plan.sharded import network_cost
from hearth.ranks.world import World


def load(settings: Settings, folder: Path, world: World, precision: str) -> TrainableModel:
    """Return this rank's model, or shard of it, from `folder`, with a fresh adapter.

    Raises like `load_model` and `load_sharded`.
    """
    if settings.parallel == "fsdp":
        return load_sharded(settings, folder, world, precision)
    return load_model(settings, folder, world.device, precision)


def tell_parts(
    settings: Settings,
    model: TrainableModel,
    planner: Planner,
    world: World,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Return shard sizes in bytes for the record and print their network cost; {} with `ddp`."""
    if settings.parallel == "ddp":
        return {}
    weights, own = weight_bytes(model)
    say(network_cost(weights, world.size))
    say(
        f"micro-batches a step: {planner.share(settings.global_batch).turns}. No held-out question "
        "is answered, since that would fetch as much for every token"
    )
    return {"weight_bytes": weights, "weight_bytes_by_rank": world.gather(own)}
