"""The fastest placement of a model's layers, within the memory of each rank."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from hearth.base.errors import ConfigError, ModelError
from hearth.base.text import counted
from hearth.plan.layer_counts import Step, is_faster
from hearth.plan.makespan import in_flight
from hearth.plan.placement import Home, Pipeline, Placement
from hearth.plan.rank_orders import fastest_order, roomiest
from hearth.plan.speed import micro_batches
from hearth.plan.split import layer_counts_for

_FILLED = 0.95
"""Part of its memory that a rank gets layers for, if the model then fits: the estimates are a few
percent off, and a rank without memory for one row ends the run."""

_GIB = 1 << 30

TOO_FEW = "parallel: pipeline needs two ranks or more, and there is one; take parallel=ddp"


def place(
    home: Home,
    layers: int,
    rows: int,
    micro_batch: int | None = None,
    keep_all: bool = False,
    least: int = 1,
) -> Pipeline:
    """Return the fastest pipeline of `layers` layers for steps of `rows` rows.

    The micro-batches are those of a run with at most `micro_batch` rows each, or of the fastest
    divisor of `rows` without it. A node that makes the pipeline slower is left out, unless
    `keep_all`; there are at least `least` stages. Some memory of each rank is left free where the
    model fits without it.

    Raises `ModelError` if no placement fits the memory of the ranks.
    """
    if len(home.nodes) < least:
        raise ModelError(TOO_FEW)
    sizes = _sizes(home, range(len(home.nodes)), rows, micro_batch)
    for each in (_with_spare(home), home):
        fitting = [
            found for size in sizes if (found := _place(each, layers, rows, size, least, keep_all))
        ]
        if fitting:
            return functools.reduce(_faster, fitting)
    size = max(micro_batches(rows, micro_batch)) if micro_batch else 1
    if size > 1 and _place(home, layers, rows, 1, least, keep_all):
        raise ModelError(_too_many_rows(size))
    raise ModelError(shortage(home, layers, rows) or _too_many(home, layers))


def _faster(one: Pipeline, other: Pipeline) -> Pipeline:
    """Return the faster one; `one` unless the other is clearly faster."""
    return other if is_faster(other.step_seconds, one.step_seconds) else one


def _with_spare(home: Home) -> Home:
    """Return `home` with the memory that ranks get layers for if the model then fits."""
    return replace(home, rooms=[_FILLED * room for room in home.rooms])


def _sizes(home: Home, ranks: Sequence[int], rows: int, micro_batch: int | None) -> list[int]:
    """Return the most rows of a micro-batch to try, ascending, of those that `ranks` measured."""
    if micro_batch:
        return [max(micro_batches(rows, micro_batch))]
    measured = min((home.speeds[rank].layer.sizes[-1] for rank in ranks), default=1)
    return [size for size in range(1, min(rows, measured) + 1) if rows % size == 0]


def pipeline(
    home: Home, placement: Placement, rows: int, micro_batch: int | None = None
) -> Pipeline:
    """Return `placement` with its predicted speed in steps of `rows` rows.

    The micro-batches are as in `place`. Where none fit the memory, they are the smallest ones, and
    `crowded` says so.
    """
    counts = [len(stage.layers) for stage in placement.stages]
    found = [
        Step(home, placement.layers, rows, size).pipeline(placement.ranks, counts)
        for size in _sizes(home, placement.ranks, rows, micro_batch)
    ]
    for each in (_with_spare(home), home):
        if fitting := [one for one in found if not crowded(each, one)]:
            return functools.reduce(_faster, fitting)
    return found[0]


def crowded(home: Home, found: Pipeline) -> list[str]:
    """Return a finding for each stage that its rank has no room for, estimated or timed."""
    stages, said = found.placement.stages, []
    for position, stage in enumerate(stages):
        need = home.need(
            stage.rank,
            len(stage.layers),
            first=position == 0,
            last=position == len(stages) - 1,
            in_flight=in_flight(found.micro_batches, position, len(stages)),
            rows=found.micro_batch,
        )
        room = home.rooms[stage.rank]
        smaller = ", a smaller micro_batch=" if found.micro_batch > 1 else ""
        if need > room:
            said.append(
                f"parallel=pipeline: split gives {_label(home, stage.rank)} "
                f"{counted(len(stage.layers), 'layer')}, which with micro-batches of "
                f"{counted(found.micro_batch, 'row')} need about {need / _GIB:.1f} GiB, and it has "
                f"{room / _GIB:.1f} GiB; take other shares{smaller} or split=auto"
            )
        elif math.isinf(found.stage_seconds[position]):
            said.append(
                f"parallel=pipeline: split gives {_label(home, stage.rank)} an end of the model, "
                "the embeddings or the head, for which it had too little memory when they were "
                f"timed; take other shares{smaller} or split=auto"
            )
    return said


def by_split(home: Home, layers: int, split: Sequence[int] | str) -> Placement:
    """Return the placement by the `split` setting, in the order of the ranks.

    Raises `ConfigError` if its shares are not one a rank, make one stage only, or leave out some of
    a node's ranks.
    """
    counts = layer_counts_for(split, layers, len(home.nodes))
    given = [rank for rank, count in enumerate(counts) if count]
    shares = split if isinstance(split, str) else ":".join(map(str, split))
    if len(given) < 2:
        raise ConfigError(
            f"split: {shares} gives all {layers} layers to {_label(home, given[0])}, and "
            "parallel=pipeline needs two ranks or more; take other shares, or parallel=ddp"
        )
    taking = {home.nodes[rank] for rank in given}
    idle = [
        _label(home, rank)
        for rank, node in enumerate(home.nodes)
        if node in taking and rank not in given
    ]
    if idle:
        raise ConfigError(
            f"split: {shares} gives no layer to {', '.join(idle)}, and a node takes part with all "
            "of its ranks or with none; take other shares"
        )
    return Placement.of(given, [counts[rank] for rank in given])


def _place(
    home: Home, layers: int, rows: int, micro_batch: int, least: int, keep_all: bool
) -> Pipeline | None:
    """Return the fastest pipeline with this micro-batch, None if nothing fits."""
    step = Step(home, layers, rows, micro_batch, least)
    found = fastest_order(step, keep_all)
    return found and step.pipeline(found.order, found.counts)


def _too_many_rows(rows: int) -> str:
    return (
        f"parallel=pipeline: the model fits no placement with micro-batches of {rows} rows, but it "
        "does with one row; take a smaller micro_batch="
    )


def _too_many(home: Home, layers: int) -> str:
    return (
        f"parallel=pipeline: the model's {layers} layers cannot be placed so that each of "
        f"{len(home.nodes)} ranks has room for its own; leave nodes out with -e nodes=, or take "
        "parallel=ddp"
    )


def _label(home: Home, rank: int) -> str:
    """Return the name of a rank for a message: its node, and which of its ranks."""
    same = [each for each, node in enumerate(home.nodes) if node == home.nodes[rank]]
    return home.nodes[rank] + (f" rank {same.index(rank)}" if len(same) > 1 else "")


def shortage(home: Home, layers: int, rows: int, micro_batch: int = 1) -> str:
    """Return the finding that `layers` layers fit no placement, and by how much, or ''.

    The finding assumes micro-batches of `micro_batch` rows, and ignores speed.
    """
    step = Step(home, layers, rows, micro_batch)
    order = roomiest(step)
    most = step.most(order)
    held = sum(most)
    if held >= layers:
        return ""
    # A stage in the middle has layers only.
    need = functools.partial(home.need, 0, first=False, last=False, in_flight=1, rows=micro_batch)
    lacking = (layers - held) * (need(layers=2) - need(layers=1)) / _GIB
    given = dict(zip(order, most, strict=True))
    ranks = range(len(home.nodes))
    each = ", ".join(f"{given.get(rank, 0)} on {_label(home, rank)}" for rank in ranks)
    return (
        f"parallel=pipeline: the model fits no placement over {counted(len(ranks), 'rank')}. "
        f"Together they have room for {held} of its {layers} layers "
        f"({each}); the other {layers - held} need about {lacking:.1f} GiB more"
    )
