"""Placement of a model's layers over the ranks (`parallel: pipeline`)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from hearth.base.text import counted
from hearth.plan.makespan import makespan
from hearth.plan.speed import Speed


@dataclass(frozen=True)
class Stage:
    """The layers of one rank: a range of consecutive decoder layers, never empty."""

    rank: int
    layers: range


@dataclass(frozen=True)
class Placement:
    """The stages of a pipeline.

    Attributes:
        stages: in the order of the activations; ranks that are left out are in none.
        layers: number of decoder layers of the whole model.
    """

    stages: tuple[Stage, ...]
    layers: int

    def __post_init__(self) -> None:
        numbers = [number for stage in self.stages for number in stage.layers]
        empty = any(not len(stage.layers) for stage in self.stages)
        if empty or numbers != list(range(self.layers)) or len(set(self.ranks)) < len(self.stages):
            raise ValueError(f"each layer on one rank, in order, and none without: not {self}")

    @classmethod
    def of(cls, ranks: Sequence[int], counts: Sequence[int]) -> Placement:
        """Return the placement with `counts` layers on each of `ranks`, in this order."""
        ends = list(itertools.accumulate(counts))
        stages = (
            Stage(rank, range(end - count, end))
            for rank, count, end in zip(ranks, counts, ends, strict=True)
        )
        return cls(tuple(stages), ends[-1] if ends else 0)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks in the order of the stages."""
        return tuple(stage.rank for stage in self.stages)

    def position(self, rank: int) -> int | None:
        """Return the position of a rank's stage, None for one that is left out."""
        return self.ranks.index(rank) if rank in self.ranks else None

    def previous(self, rank: int) -> int | None:
        """Return the rank that sends activations to `rank`, if any."""
        position = self.position(rank)
        return self.ranks[position - 1] if position else None

    def next(self, rank: int) -> int | None:
        """Return the rank that `rank` sends activations to, if any."""
        position = self.position(rank)
        behind = () if position is None else self.ranks[position + 1 : position + 2]
        return behind[0] if behind else None


@dataclass(frozen=True)
class LayerSpeed:
    """Seconds of the forward and backward pass of a rank, by micro-batch: of the model's parts.

    Attributes:
        layer: of one decoder layer.
        embedding: of the embedding, which the first stage computes.
        head: of the last norm, the head and the loss, which the last stage computes.

    Embedding and head have only the sizes that fitted the rank's memory, None if none did: a rank
    with room for layers alone is a stage between others.
    """

    layer: Speed
    embedding: Speed | None
    head: Speed | None


class MemoryNeed(Protocol):
    """The memory in bytes of a rank; it never falls with `layers` or `in_flight`."""

    def __call__(
        self, rank: int, layers: int, *, first: bool, last: bool, in_flight: int, rows: int
    ) -> float:
        """Return it for a stage of `layers` with `in_flight` micro-batches of `rows` rows."""
        ...


@dataclass(frozen=True)
class Home:
    """The ranks that a model can be placed on, by rank.

    Attributes:
        nodes: names of their nodes. A node takes part with all of its ranks or with none.
        speeds: measured seconds of the model's parts.
        rooms: bytes of memory.
        links: seconds that the activations of one row take from a rank (first index) to another one
            (second index), beyond those that any message takes.
        need: memory of a stage.
        delays: seconds that any message takes from rank to rank; empty where they are not known.
        enlarged: how many times the memory that there is `rooms` are.
    """

    nodes: Sequence[str]
    speeds: Sequence[LayerSpeed]
    rooms: Sequence[float]
    links: Sequence[Sequence[float]]
    need: MemoryNeed
    delays: Sequence[Sequence[float]] = ()
    enlarged: float = 1.0

    def message(self, sender: int, receiver: int, rows: int) -> float:
        """Return the seconds of a micro-batch of `rows` rows from a rank to another one."""
        delay = self.delays[sender][receiver] if self.delays else 0.0
        return self.links[sender][receiver] * rows + delay


@dataclass(frozen=True)
class Pipeline:
    """A placement and its predicted speed.

    Attributes:
        rows: of a step.
        micro_batch: most rows of a micro-batch.
        micro_batches: their number in a step.
        stage_seconds: of each stage for one micro-batch, in the order of the stages.
        link_seconds: of the link behind each stage but the last, for its activations.
        gradient_seconds: of the same link, for its gradient back.
    """

    placement: Placement
    rows: int
    micro_batch: int
    micro_batches: int
    stage_seconds: tuple[float, ...]
    link_seconds: tuple[float, ...]
    gradient_seconds: tuple[float, ...]

    @cached_property
    def step_seconds(self) -> float:
        """Predicted seconds of a step."""
        return makespan(
            self.stage_seconds, self.link_seconds, self.gradient_seconds, self.micro_batches
        )

    @property
    def bubble(self) -> float:
        """The part of a step that the slowest stage waits."""
        busy = self.micro_batches * max(self.stage_seconds)
        return max(0.0, 1 - busy / self.step_seconds)

    @property
    def rows_per_second(self) -> float:
        """Predicted speed."""
        return self.rows / self.step_seconds


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
