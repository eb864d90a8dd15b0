"""The facts that nodes answer with in the stages of a launch, typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self


@dataclass(frozen=True)
class _Facts:
    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """Return the typed facts; those that this computer does not know are left out."""
        known = {each.name for each in fields(cls)}
        return cls(**{name: value for name, value in facts.items() if name in known})


@dataclass(frozen=True)
class Inspection(_Facts):
    """A node before a run: the facts of the module `hearth_inspect`.

    Attributes:
        own: absolute paths of the node (`python`, `workspace`, `models`) and its options in the
            inventory: `nproc`, `threads`, `variables`, `lend`, `power_limit`, `one_computer`.
        memory: for ranks, see `hearth.fit.capacity`; the GPUs as the driver lists them.
        home: other uses of the machine.
        port: the supervisor's, for the others; None if the node was not asked.
        busy: the run that has the node; this one has to wait for it.
        away: why the node is away from runs that heed its terms of lending.
        prepared: the facts of an earlier preparation with the same inputs.
    """

    own: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)
    home: Mapping[str, Any] = field(default_factory=dict)
    port: int | None = None
    generation: int = 0
    busy: str = ""
    queue_end: float = 0.0
    away: str = ""
    copies: Mapping[str, Any] = field(default_factory=dict)
    shape: Mapping[str, Any] = field(default_factory=dict)
    prepared: Mapping[str, Any] = field(default_factory=dict)
    slurm_gpus: Mapping[str, int] = field(default_factory=dict)
    rdma: bool | None = None
    lockable: int | None = None


@dataclass(frozen=True)
class Preparation(_Facts):
    """A prepared node, see `hearth.node.facts`; `ranks` have their measured speeds, if any."""

    nproc: int = 1
    ranks: Sequence[Mapping[str, Any]] = ()
    summary: Sequence[str] = ()
    model_revision: str | None = None
    data_revision: str | None = None
    held_out_rows: int = 0
    checkpoint: int | None = None
    port: int | None = None
    gpus: int | None = None
    weight_bytes: int = 0
    steps: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LayerTimes(_Facts):
    """The facts of `hearth.node layers`: each rank's speed for parts of the model."""

    layers: Sequence[Mapping[str, Any]] = ()
    checkpoint: int | None = None
    port: int | None = None


@dataclass(frozen=True)
class LinkSpeeds(_Facts):
    """A node's links by peer: speed and round trip."""

    mbit: Mapping[str, float] = field(default_factory=dict)
    milliseconds: Mapping[str, float] = field(default_factory=dict)


def facts_of(results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the facts of a node's results, {} without any."""
    return next((each["facts"] for each in reversed(results) if each.get("facts")), {})
