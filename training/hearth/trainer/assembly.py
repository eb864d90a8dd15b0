"""Put together a rank's trainer: load the model, and hand each part the parts that it needs."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch

from hearth.base.errors import ModelError
from hearth.config import Run, Settings, in_precision
from hearth.config.layout import Layout
from hearth.config.settings import TIMED
from hearth.data.rows import Rows
from hearth.data.template import ensure_chat_template
from hearth.model import precision
from hearth.model.backend import TrainableModel
from hearth.model.load import begin_with, load_layers, load_model
from hearth.model.loaded import check_isolation
from hearth.model.optimizer import Means, choose_optimizer, make_optimizer, means_here
from hearth.model.sharded import load_sharded
from hearth.node.facts import software_here
from hearth.node.prepare import Prepared, inputs_of, start_of
from hearth.node.probe import Measured
from hearth.node.speed import power_here
from hearth.plan.placement import Placement, describe_stage
from hearth.plan.planner import Planner, Staged
from hearth.plan.row_order import choose_order
from hearth.ranks.energy import Meter
from hearth.ranks.memory import is_out_of_memory, limit_memory, weights_too_large
from hearth.ranks.world import World, agree
from hearth.record.folders import choose_writers
from hearth.record.own_disk import OwnDisk
from hearth.trainer import rounds
from hearth.trainer.checkpointing import Checkpointer, newest_checkpoint
from hearth.trainer.components import Choices, Learning, RankContext, RunFacts
from hearth.trainer.compute import Compute, Computing
from hearth.trainer.evaluation import Evaluator
from hearth.trainer.exchange import Exchange
from hearth.trainer.loop import Trainer
from hearth.trainer.optimizer_step import Learner
from hearth.trainer.pipeline import StagePasses
from hearth.trainer.placing import check_all_learn, choose_placement
from hearth.trainer.planning import choose_planner
from hearth.trainer.preferences import choose_objective
from hearth.trainer.reference import Reference
from hearth.trainer.replicas import sync_weights
from hearth.trainer.reports import Reports
from hearth.trainer.stage_compute import StageCompute
from hearth.trainer.stepper import Stepper
from hearth.trainer.telemetry import Telemetry
from hearth.trainer.training_state import StageState, TrainingState
from hearth.trainer.work import OPTIMIZER, Work

_LOADING = 3600.0
"""Timeout for loading a model: large ones come from slow disks or over the network."""


def assemble(
    run: Run,
    layout: Layout,
    prepared: Prepared,
    measured: Measured,
    world: World,
    choices: dict[str, str] | None = None,
) -> Trainer:
    """Return this rank's trainer, at the newest checkpoint of the run or before its first step.

    All members of the group call this together. With `choices`, those of a group that trains
    already, the rank loads by itself, to join that group (see `in_place`).

    Raises `GroupBroken` if a rank is lost, and `HearthError` if ranks differ in data, model or
    software, or if the model cannot be trained with the settings of the run.
    """
    settings, joins, data = run.settings, choices is not None, prepared.data
    context = _context(run, layout, measured, world)
    inputs = inputs_of(prepared)
    identity = {"run": run.name} | software_here() | inputs | start_of(prepared)
    agree(world, identity)
    launch = "" if joins else world.from_leader(secrets.token_hex(8))
    found = None if joins else newest_checkpoint(context, inputs)
    # A resumed run keeps the values that `auto` was first resolved to, even on other nodes.
    chosen = choose(settings, world, choices or (found.facts if found else {}))
    planner, placement = _planner(run, layout, prepared.model.path, measured, world, chosen, joins)
    order = choose_order(settings, len(data.train), data.parts)
    agree(world, order.identity())
    steps = order.steps(settings.epochs, settings.max_steps)
    limit_resources(settings, world)
    adapter = None if joins or found else _adapter_of(prepared)
    reference = Reference(data, settings.objective == "kto") if settings.compares else None
    learning = load_learning(
        context, prepared.model.path, data.train, steps, chosen, placement, adapter, reference
    )
    learned = learning.model.learning()
    identity |= order.identity() | learned | asdict(chosen)
    power = power_here(run, layout, prepared, world.device)
    facts = RunFacts(data.train, order, steps, chosen, inputs, identity, placement, power)
    if not joins:
        agree(world, learned)
        if not placement:
            sync_weights(learning.parameters, world)
        if reference and not found:  # else the checkpoint has it
            begun = identity | {"run": "", "settings": _decides_reference(settings)}
            reference.fill(learning.compute, planner, world, context.work, layout.tokens, begun)
    writes = world.keeps if world.control else world.leads
    telemetry = Telemetry(run, context.folder, writes, context.disk)
    checkpointer = Checkpointer(context, learning, telemetry)
    reports = Reports(context, facts, learning, planner, telemetry)
    trainer = Trainer(
        context,
        facts,
        learning,
        telemetry,
        reports,
        Stepper(context, facts, learning, planner, reports.plans),
        Evaluator(context, data, learning, planner, checkpointer.keep_best),
        checkpointer,
    )
    if not joins:
        trainer.begin(launch, found)
    return trainer


def _adapter_of(prepared: Prepared) -> Path | None:
    """Return the weights of the adapter that the run begins with, None for a fresh one.

    Raises `ModelError` if a resumed run has neither a checkpoint nor that adapter any more.
    """
    start = prepared.run.start
    if start and prepared.adapter is None:
        raise ModelError(
            f"onto: the run has no checkpoint yet, and {start.path}, which it began with, is gone "
            "from this node; start a new run"
        )
    return prepared.adapter


def _context(run: Run, layout: Layout, measured: Measured, world: World) -> RankContext:
    """Return the rank's context, after announcing that it loads the model."""
    if not world.control:  # nodes of supervisors have workspaces of their own
        choose_writers(layout.results, world)
    disk = OwnDisk(world.keeps, spares=len(world.nodes) > 1)
    work = Work(world, measured.speed)
    work.begin("loading", _LOADING)
    folders = layout.run_dir(run.name), layout.checkpoint_dir(run.name)
    return RankContext(run, *folders, world, work, Meter.open(world), disk)


def _planner(
    run: Run,
    layout: Layout,
    model: Path,
    measured: Measured,
    world: World,
    choices: Choices,
    joins: bool,
) -> tuple[Planner, Placement | None]:
    """Return the planner of rows and, in a pipeline, the placement of layers."""
    if not run.settings.in_stages:
        return choose_planner(run.settings, measured, layout, world, joins), None
    run = in_precision(run, choices.precision)
    placement, micro_batch = choose_placement(run, layout, model, world)
    return Staged(placement, world.size, micro_batch), placement


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


def limit_resources(settings: Settings, world: World) -> None:
    """Keep this process within the threads and the memory that the settings give it."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.memory_limit and world.device.type == "cpu":
        limit_memory(settings.memory_limit)


def load_learning(
    context: RankContext,
    folder: Path,
    rows: Rows,
    steps: int,
    choices: Choices,
    placement: Placement | None,
    adapter: Path | None = None,
    reference: Reference | None = None,
) -> Learning:
    """Load the model in `folder`, and return it with what changes it in a run of `steps`.

    With a `placement` this rank loads the layers of its stage. The weights in the file `adapter`
    take the place of a fresh adapter's. The `reference` is for an objective of preferences, and is
    filled later.

    Raises `HearthError` if the model cannot be trained with these settings.
    """
    run, settings, world, work = context.run, context.settings, context.world, context.work
    # A single rank has nothing to average.
    learns_alone = settings.sync_every > 1 and world.size > 1
    if learns_alone:
        rounds.check(choices.precision)
    model = _load(settings, folder, choices, world, placement)
    if adapter:
        begin_with(model, adapter)
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
    if reference:
        changing = changing | {"reference": reference}
    objective = choose_objective(settings, reference)
    compute: Computing
    if placement:
        passes = StagePasses(model, placement, world, autocast, scaler.scale)
        compute = StageCompute(model, rows, passes, placement, world, exchange.clear)
        state: TrainingState = StageState(model, changing, placement, world)
    else:
        # With fsdp each token of an answer would gather the whole model over the network.
        answers: Literal["alone", "no"] = "no" if settings.parallel == "fsdp" else "alone"
        clear, scale = exchange.clear, scaler.scale
        compute = Compute(model, objective, rows, autocast, clear, scale, work, answers)
        state = TrainingState(model, changing)
    return Learning(model, parameters, objective, compute, exchange, learner, in_rounds, state)


def _decides_reference(settings: Settings) -> str:
    """Return the settings that decide the model before its first step, and the rows, as JSON."""
    names = {*TIMED, "model", "seed", "held_out"}
    return settings.model_dump_json(include=names)


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
