"""The parts of a rank's training, put together from the settings and the model."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hearth.config import Run, Settings
from hearth.data.rows import Rows
from hearth.data.template import ensure_chat_template
from hearth.model import precision
from hearth.model.backend import TrainableModel
from hearth.model.load import load_model
from hearth.model.optimizer import make_optimizer
from hearth.model.packing_isolation import check_isolation
from hearth.model.sharded import load_sharded
from hearth.ranks.memory import limit_memory
from hearth.ranks.world import World
from hearth.trainer import rounds
from hearth.trainer.choices import Choices
from hearth.trainer.compute import Compute
from hearth.trainer.exchange import Exchange
from hearth.trainer.optimizer_step import Learner
from hearth.trainer.work import Work


@dataclass(frozen=True)
class Parts:
    """The parts of a rank's training that do not know of each other's use.

    `changing` has the parts whose state belongs in a checkpoint, by name; `rounds` is None unless
    ranks take local steps.
    """

    model: TrainableModel
    parameters: list[torch.nn.Parameter]
    exchange: Exchange
    compute: Compute
    learner: Learner
    rounds: rounds.Rounds | None
    changing: dict[str, Any]
    autocast: Callable[[], AbstractContextManager[object]]


def limit_resources(settings: Settings, world: World) -> None:
    """Keep this process within the threads and the memory that the settings give it."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.memory_limit and world.device.type == "cpu":
        limit_memory(settings.memory_limit)


def assemble(
    run: Run, folder: Path, rows: Rows, steps: int, choices: Choices, world: World, work: Work
) -> Parts:
    """Load the model in `folder` and return it with the other parts, for a run of `steps`.

    Raises `HearthError` if the model cannot be trained with these settings.
    """
    settings = run.settings
    # A single rank has nothing to average.
    learns_alone = settings.sync_every > 1 and world.size > 1
    if learns_alone:
        rounds.check(choices.precision)
    model = _load(settings, folder, choices, world)
    parameters = [parameter for _, parameter in model.trainable()]
    parts = rounds.PARTS if learns_alone else 1
    exchange = Exchange(parameters, world, settings.compress, parts)
    scaler = precision.loss_scaler(choices.precision, world.device)
    model.use_scaler(scaler)
    autocast = functools.partial(precision.autocast, choices.precision, world.device)
    if run.packs_documents or model.joins_rows:
        check_isolation(model, run.source.id, autocast, lambda here: any(world.gather(here)))
    optimizer = make_optimizer(choices.optimizer, settings, model, world.rank, exchange.share)
    learner = Learner(optimizer, settings, parameters, scaler, steps)
    changing: dict[str, Any] = learner.changing
    in_rounds = None
    if learns_alone:
        undoable = world.control is not None
        in_rounds = rounds.Rounds(parameters, learner.optimizer, exchange, undoable)
        changing = changing | {"outer": in_rounds.outer}
    compute = Compute(model, rows, autocast, exchange.clear, scaler.scale, work)
    return Parts(model, parameters, exchange, compute, learner, in_rounds, changing, autocast)


def _load(settings: Settings, folder: Path, choices: Choices, world: World) -> TrainableModel:
    """Load the model, whole or this rank's part of it; every rank draws the same new weights."""
    torch.manual_seed(settings.seed)
    if settings.parallel == "fsdp":
        model = load_sharded(settings, folder, world, choices.precision)
    else:
        model = load_model(settings, folder, world.device, choices.precision)
    ensure_chat_template(model.tokenizer)
    return model
