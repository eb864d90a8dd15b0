"""The parts of a rank's training, put together from the settings and the model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from hearth.config import Run, Settings
from hearth.data.rows import Rows
from hearth.data.template import ensure_chat_template
from hearth.model import precision
from hearth.model.backend import TrainableModel
from hearth.model.load import load_layers, load_model
from hearth.model.loaded import check_isolation
from hearth.model.optimizer import Means, choose_optimizer, make_optimizer, means_here
from hearth.model.sharded import load_sharded
from hearth.plan.placement import Placement, describe_stage
from hearth.ranks.memory import is_out_of_memory, limit_memory, weights_too_large
from hearth.ranks.world import World
from hearth.trainer import rounds
from hearth.trainer.compute import Compute, Computing
from hearth.trainer.exchange import Exchange
from hearth.trainer.optimizer_step import Learner
from hearth.trainer.pipeline import StagePasses
from hearth.trainer.placing import check_all_learn
from hearth.trainer.stage_compute import StageCompute
from hearth.trainer.training_state import StageState, TrainingState
from hearth.trainer.work import OPTIMIZER, Work


@dataclass(frozen=True)
class Choices:
    """Names of the precision and of the optimizer, never `auto`."""

    precision: str
    optimizer: str


def choose(settings: Settings, world: World, begun: Mapping[str, str]) -> Choices:
    """Return the choices of a run; all members of the group take part.

    `begun` are those of the run so far, which hold on whatever nodes it goes on: of its checkpoint,
    or of the group that this rank will join. Empty for a new run.

    Raises `ConfigError` naming the nodes that cannot follow.
    """
    everyone = world.gather((world.node, precision.supported(world.device)))
    means = [Means(**each) for each in world.gather(asdict(means_here(world.node, world.device)))]
    return Choices(
        precision.choose(begun.get("precision", settings.precision), everyone),
        choose_optimizer(
            begun.get("optimizer", settings.optimizer), means, averaged=settings.sync_every > 1
        ),
    )


@dataclass(frozen=True)
class Parts:
    """The parts of a rank's training that do not know of each other's use.

    `state` is that of the model and of the parts that belong in a checkpoint; `rounds` is None
    unless ranks take local steps.
    """

    model: TrainableModel
    parameters: list[torch.nn.Parameter]
    exchange: Exchange
    compute: Computing
    learner: Learner
    rounds: rounds.Rounds | None
    state: TrainingState


def limit_resources(settings: Settings, world: World) -> None:
    """Keep this process within the threads and the memory that the settings give it."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.memory_limit and world.device.type == "cpu":
        limit_memory(settings.memory_limit)


def assemble(
    run: Run,
    folder: Path,
    rows: Rows,
    steps: int,
    choices: Choices,
    world: World,
    work: Work,
    placement: Placement | None,
) -> Parts:
    """Load the model in `folder` and return it with the other parts, for a run of `steps`.

    With a `placement` this rank loads the layers of its stage.

    Raises `HearthError` if the model cannot be trained with these settings.
    """
    settings = run.settings
    # A single rank has nothing to average.
    learns_alone = settings.sync_every > 1 and world.size > 1
    if learns_alone:
        rounds.check(choices.precision)
    model = _load(settings, folder, choices, world, placement)
    parameters = [parameter for _, parameter in model.trainable()]
    if placement:
        check_all_learn(placement, settings, world, learns=bool(parameters))
    parts = rounds.PARTS if learns_alone else 1
    exchange = Exchange(parameters, world, settings.compress, parts, keeps=placement is not None)
    scaler = precision.loss_scaler(choices.precision, world.device)
    model.use_scaler(scaler)
    autocast = functools.partial(precision.autocast, choices.precision, world.device)
    # No stage can compute a loss alone; tests compare packed rows for every kind that has stages.
    # Unsloth joins rows, other backends do not: all ranks check as soon as one of them joins.
    if not placement and (run.packs_documents or any(world.gather(model.joins_rows))):
        check_isolation(model, run.source.id, autocast, lambda here: any(world.gather(here)))

    def share(updates: torch.Tensor) -> None:
        if updates.device.type == "cuda":
            torch.cuda.synchronize(updates.device)  # else this rank's own part counts as waiting
        work.wait()  # else a rank that hangs in its part would have all others count as hanging
        exchange.share(updates)
        work.begin(OPTIMIZER)

    optimizer = make_optimizer(choices.optimizer, settings, model, world.rank, share)
    learner = Learner(optimizer, settings, parameters, scaler, steps)
    changing: dict[str, Any] = learner.changing
    in_rounds = None
    if learns_alone:
        undoable = world.control is not None
        in_rounds = rounds.Rounds(parameters, learner.optimizer, exchange, undoable)
        changing = changing | {"outer": in_rounds.outer}
    compute: Computing
    if placement:
        passes = StagePasses(model, placement, world, autocast, scaler.scale)
        compute = StageCompute(model, rows, passes, placement, world, exchange.clear)
        state: TrainingState = StageState(model, changing, placement, world)
    else:
        # With fsdp each token of an answer would gather the whole model over the network.
        answers: Literal["alone", "no"] = "no" if settings.parallel == "fsdp" else "alone"
        compute = Compute(model, rows, autocast, exchange.clear, scaler.scale, work, answers)
        state = TrainingState(model, changing)
    return Parts(model, parameters, exchange, compute, learner, in_rounds, state)


def _load(
    settings: Settings,
    folder: Path,
    choices: Choices,
    world: World,
    placement: Placement | None,
) -> TrainableModel:
    """Load the model, whole or this rank's part of it; every rank draws the same new weights.

    Raises `HearthError` if it does not fit into the memory.
    """
    torch.manual_seed(settings.seed)
    stage = placement.stages[placement.ranks.index(world.rank)] if placement else None
    try:
        if placement and stage:
            model = load_layers(
                settings, folder, world.device, choices.precision, stage.layers, placement.layers
            )
        elif settings.parallel == "fsdp":
            model = load_sharded(settings, folder, world, choices.precision)
        else:
            model = load_model(settings, folder, world.device, choices.precision)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        part = describe_stage(stage, world.node) if stage else folder.name
        less = "split=… to give it fewer layers" if stage else "parallel=pipeline"
        raise weights_too_large(part, error, f"load_in_4bit=on or {less}") from None
    ensure_chat_template(model.tokenizer)
    return model
