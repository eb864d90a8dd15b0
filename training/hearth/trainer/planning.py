"""Choice of the planner, the same on every rank, and plans recorded by earlier runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from hearth.base.errors import ConfigError, HearthError
from hearth.config import Settings
from hearth.config.layout import Layout
from hearth.node.probe import Measured
from hearth.node.speed import most_rows
from hearth.plan.follow import AdaptivePlanner
from hearth.plan.planner import Fixed, Known, Planner, RecordedPlans, Replayed
from hearth.plan.speed import UNKNOWN, Speed
from hearth.plan.split import Plan, Plans, shares_for
from hearth.ranks.world import World
from hearth.record.events import PlanEvent, StartEvent, StepEvent, event_in
from hearth.record.lines import METRICS, text_lines

_PLAN = '{"kind": "plan"'


def choose_planner(
    settings: Settings, measured: Measured, layout: Layout, world: World, joins: bool = False
) -> Planner:
    """Return the planner of a run: fixed shares, following the ranks' speeds, or a replay.

    Its plans are of all ranks of the run's layout, and give rows to the members of `world` only.
    `joins`: this rank loads alone, to join a group; `regroup_planner` then completes the planner.

    Raises `HearthError` on all members if a split or a record does not fit the ranks.
    """
    together = settings.parallel == "fsdp"
    ranks = len(world.layout)
    planner: Planner
    if settings.replay:
        path = layout.run_dir(settings.replay) / METRICS
        plans, steps = ([], 0) if joins else _recorded(settings.replay, path, world)
        plans = [(step, replace(plan, together=together)) for step, plan in plans]
        planner = Replayed(settings.replay, plans, ranks, steps)
    elif settings.split == "auto" and not together:
        planner = AdaptivePlanner([UNKNOWN] * ranks, measured.row_tokens or None)
    else:
        split = None if isinstance(settings.split, str) else settings.split
        size = None if settings.micro_batch == "auto" else settings.micro_batch
        planner = Fixed(shares_for(split, ranks), [size] * ranks, together)
    planner.regroup(world.members, _speeds(settings, measured, world), {})
    return planner


def regroup_planner(
    planner: Planner, settings: Settings, measured: Measured, world: World, source: int
) -> None:
    """Let `planner` divide the rows among the present members of `world`; all of them take part.

    They all adopt the knowledge of the rank `source`: the speeds and slowdowns of all ranks that it
    has been in a group with, also of those that left. The speed of any other member is the one it
    has `measured`. Micro-batches were too large if any member knows so: one of them may have
    taken a step that the others have not.
    """
    own = _speeds(settings, measured, world)
    known = TypeAdapter(Known).validate_python(world.from_rank(source, asdict(planner.known)))
    if isinstance(planner, Replayed):
        record = world.from_rank(source, asdict(planner.record))
        planner.repeat(TypeAdapter(RecordedPlans).validate_python(record))
    limits = world.gather(asdict(planner.known)["limits"])
    for each in TypeAdapter(list[dict[int, int]]).validate_python(limits):
        for rank, size in each.items():
            planner.fits_no_more_than(rank, size)
    planner.regroup(world.members, own | dict(known.speeds), known.slowness)


def _speeds(settings: Settings, measured: Measured, world: World) -> dict[int, Speed]:
    """Return the speed that each member of `world` has measured; all of them take part."""
    everyone = TypeAdapter(list[Measured]).validate_python(world.gather(asdict(measured)))
    most = most_rows(settings)
    return {
        rank: each.speed.no_larger_than(most)
        for rank, each in zip(world.members, everyone, strict=True)
    }


def by_leader(
    world: World, decide: Callable[[], Any], error: type[HearthError] = ConfigError
) -> Any:
    """Return the JSON value that the leader alone decides; raise its findings on all ranks."""
    found: dict[str, Any] = {"findings": []}
    if world.leads:
        try:
            found["decided"] = decide()
        except HearthError as raised:
            found["findings"] = list(raised.findings)
    found = world.from_leader(found)
    if found["findings"]:
        raise error(*found["findings"])
    return found["decided"]


def _recorded(run: str, path: Path, world: World) -> tuple[list[tuple[int, Plan]], int]:
    """Read `recorded_plans` of an earlier run on the leader; return them on every rank."""

    def read() -> Any:
        plans, steps = recorded_plans(run, path)
        return [(at, asdict(plan)) for at, plan in plans], steps

    recorded = TypeAdapter(tuple[list[tuple[int, Plan]], int])
    return recorded.validate_python(by_leader(world, read))


def recorded_plans(run: str, path: Path) -> tuple[list[tuple[int, Plan]], int]:
    """Return the plans in a run's metrics, each with its first 0-based step, and the step count.

    Raises `ConfigError` if there are none, or if the run was a pipeline: its record has the rows of
    a step once for each stage.
    """
    if not path.is_file():
        raise ConfigError(
            f"replay: {path} is missing; the record of run '{run}' must be on the node of rank 0"
        )
    plans, last = [], 0
    for line in text_lines(path):
        match event_in(line):
            case StartEvent(stages=[_, *_]):
                raise ConfigError(
                    f"replay: run '{run}' trained with parallel=pipeline, which divides the layers "
                    "over the ranks, not the rows, so there is no split to repeat; leave replay out"
                )
            case PlanEvent(step=step, rows=rows, micro_batch=[*sizes]):
                plans.append((step - 1, Plan(tuple(rows), tuple(sizes))))
                last = max(last, step)
            case StepEvent(step=step):
                last = max(last, step)
            case _ if line.startswith(_PLAN) and line.rstrip().endswith("}"):  # else it is torn
                raise ConfigError(f"replay: {path} has a damaged plan; leave replay out")
    if not plans:
        raise ConfigError(f"replay: {path} contains no plans")
    return plans, last


def slowness_of(planner: Planner, ranks: int) -> list[float]:
    """Return each rank's slowdown: its time now divided by the time that was measured."""
    known = planner.slowness if isinstance(planner, AdaptivePlanner) else (1.0,) * ranks
    return [round(slow, 3) for slow in known]


def rows_over(plans: Plans) -> list[int]:
    """Return each rank's number of rows, summed over these steps; [] without steps."""
    return [sum(of_steps) for of_steps in zip(*(plan.rows for plan in plans), strict=True)]
