"""Plans of a pipeline: every stage takes part in all rows of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hearth.base.text import counted
from hearth.plan.placement import Placement, Stage
from hearth.plan.planner import Planner
from hearth.plan.speed import Speed
from hearth.plan.split import Plan, Plans


class Staged(Planner):
    """The planner of a pipeline on `ranks` ranks, with micro-batches of at most `micro_batch` rows.

    All stages compute the same micro-batches: what does not fit one of them fits none.
    """

    def __init__(self, placement: Placement, ranks: int, micro_batch: int) -> None:
        self._takes_part = [placement.position(rank) is not None for rank in range(ranks)]
        self._micro_batch = micro_batch

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return all rows of each step on every stage."""
        return tuple(self.share(rows) for rows in sizes)

    def share(self, rows: int) -> Plan:
        """Return all `rows` on every stage."""
        shares = tuple(rows if takes_part else 0 for takes_part in self._takes_part)
        return Plan(shares, (self._micro_batch,) * len(shares), whole=True)

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Limit the micro-batches of all stages to `size` rows."""
        self._micro_batch = min(size, self._micro_batch)

    def regroup(
        self, members: Sequence[int], speeds: Mapping[int, Speed], slowness: Mapping[int, float]
    ) -> None:
        """Keep the plans: stages cannot be spared."""


def describe_stages(placement: Placement, nodes: Sequence[str], pieces: Sequence[int]) -> str:
    """Return a line about the layers of each node's ranks, and the micro-batches of a step.

    `nodes` names each rank's node; `pieces` are the rows of the micro-batches. The layers are those
    of Transformers also where a rank with the whole model would train with Unsloth.
    """
    stages = ", ".join(describe_stage(stage, nodes[stage.rank]) for stage in placement.stages)
    rows = counted(max(pieces), "row")
    return (
        f"parallel=pipeline, with Transformers: {stages} of {placement.layers}; micro-batches per "
        f"step: {len(pieces)} of {rows}"
    )


def describe_stage(stage: Stage, node: str) -> str:
    """Return the node of a stage with its layers, counted from 1."""
    return f"{node} {describe_layers(stage)}"


def describe_layers(stage: Stage) -> str:
    """Return the layers of a stage, counted from 1."""
    first, last = stage.layers.start + 1, stage.layers.stop
    return f"layer {first}" if first == last else f"layers {first}-{last}"
