"""Why a run, or one launch of it, ended: one answer, the same on every node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["waiting", "running", "finished", "failed", "stopped"]
"""A run on a node: waiting for the others, training, or one of the three ends."""

Kind = Literal["rank_failed", "node_lost", "node_back", "not_ready", "stopped"]

ENDS: frozenset[State] = frozenset(("finished", "failed", "stopped"))
_LEFT_ALONE: frozenset[Kind] = frozenset(("not_ready", "node_lost"))


@dataclass(frozen=True)
class Cause:
    """The node to look at, the rank in the world (None: the whole node), and one to a few lines."""

    node: str
    rank: int | None
    kind: Kind
    message: str


@dataclass(frozen=True)
class Verdict:
    """The outcome of a launch, and of the run unless it is to be launched `again`.

    A run that finished has no cause.
    """

    state: State | Literal["again"]
    cause: Cause | None = None


def telling(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return, by node, the records that tell how a run ended; none if its last launch has no end.

    `records` are those of supervisors: `state`, `generation`, `cause`. The nodes of a launch record
    the same verdict, but for one that could no longer hear it: awake again, or back after a power
    cut, it knows only that nobody was there. That says nothing where another node knows more.
    """
    last = max(map(generation_of, records.values()), default=-1)
    ended = {
        node: record
        for node, record in records.items()
        if record["state"] in ENDS and generation_of(record) == last
    }
    heard = {
        node: record
        for node, record in ended.items()
        if record["state"] != "failed" or (record.get("cause") or {}).get("kind") not in _LEFT_ALONE
    }
    return heard or ended


def generation_of(record: Mapping[str, Any]) -> int:
    """Return which launch a supervisor's record is of; -1 where nobody knows."""
    generation = record.get("generation")
    return -1 if generation is None else int(generation)
