"""The fastest placement of a model's layers, within the memory of each rank."""

from __future__ import annotations

import functools
from dataclasses import replace

from hearth.base.errors import ModelError
from hearth.plan.layer_counts import CLEARLY, Step
from hearth.plan.placement import Home, Pipeline, Placement
from hearth.plan.rank_orders import fastest_order, roomiest
from hearth.plan.speed import micro_batches

_FILLED = 0.95
"""Part of its memory that a rank gets layers for, if the model then fits: the estimates are a few
percent off, and a rank without memory for one row ends the run."""

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
    fastest = min((speed.layer.sizes[-1] for speed in home.speeds), default=1)
    sizes = _sizes(rows, micro_batch, fastest)
    with_spare = replace(home, rooms=[_FILLED * room for room in home.rooms])
    for each in (with_spare, home):
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
    return other if other.step_seconds < one.step_seconds * (1 - CLEARLY) else one


def _sizes(rows: int, micro_batch: int | None, measured: int) -> list[int]:
    """Return the most rows of a micro-batch to try, ascending."""
    if micro_batch:
        return [max(micro_batches(rows, micro_batch))]
    return [size for size in range(1, min(rows, measured) + 1) if rows % size == 0]


def pipeline(home: Home, placement: Placement, rows: int, micro_batch: int) -> Pipeline:
    """Return `placement` with its predicted speed in steps of `rows` rows."""
    step = Step(home, placement.layers, rows, max(micro_batches(rows, micro_batch)))
    order = placement.ranks
    return step.pipeline(order, [len(stage.layers) for stage in placement.stages])


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

    It is judged with micro-batches of so many rows, and regardless of speed.
    """
    step = Step(home, layers, rows, micro_batch)
    order = roomiest(step)
    most = step.most(order)
    held = sum(most)
    if held >= layers:
        return ""
    # A stage in the middle has layers only.
    need = functools.partial(home.need, 0, first=False, last=False, in_flight=1, rows=micro_batch)
    lacking = (layers - held) * (need(layers=2) - need(layers=1)) / (1 << 30)
    given = dict(zip(order, most, strict=True))
    ranks = range(len(home.nodes))
    each = ", ".join(f"{given.get(rank, 0)} on {_label(home, rank)}" for rank in ranks)
    return (
        f"parallel=pipeline: the model fits no placement over {len(ranks)} "
        f"rank{'s' * (len(ranks) > 1)}. Together they have room for {held} of its {layers} layers "
        f"({each}); the other {layers - held} need about {lacking:.1f} GiB more"
    )
