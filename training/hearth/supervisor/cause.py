"""The cause of the end of a run, or of one launch; the same on every node."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Ansible ships this file under a package of its own.
from ..base.files import DISK_FULL

State = Literal["queued", "waiting", "running", "finished", "failed", "stopped"]
"""State of a run on a node: in a queue, waiting for the others, training, or ended.

The queue is that of the node, or Slurm's.
"""

Kind = Literal["rank_failed", "node_lost", "node_back", "not_ready", "queued", "stopped", "away"]

ENDS: frozenset[State] = frozenset(("finished", "failed", "stopped"))
_NO_DISK = (*map(os.strerror, DISK_FULL), "is full;")
_LEFT_ALONE: frozenset[Kind] = frozenset(("not_ready", "node_lost"))


@dataclass(frozen=True)
class Cause:
    """The node to inspect, the rank in the world (None: the whole node), and one to a few lines.

    The kind `away` is no fault: the owner wants the node, which comes back by itself.
    """

    node: str
    rank: int | None
    kind: Kind
    message: str

    @classmethod
    def left(cls, node: str, why: str, returns: bool) -> Cause:
        """Return the cause of a team without a node that leaves in order."""
        if returns:
            return cls(node, None, "away", f"away: {why}")
        return cls(node, None, "node_lost", f"{node} left: {why}")

    @classmethod
    def failed(cls, node: str, failure: RanksFailure) -> Cause:
        """Return the cause of a team without a node whose ranks failed."""
        return cls(node, failure.rank, "rank_failed", failure.message)

    @classmethod
    def held_up(cls, wanted: Mapping[str, str]) -> Cause:
        """Return the cause of a wait: owners want these nodes, for these reasons."""
        (first, why), *others = wanted.items()
        reasons = [why, *(f"{node}: {why}" for node, why in others)]
        return cls.left(first, "; ".join(reasons), returns=True)


@dataclass(frozen=True)
class LaunchOutcome:
    """The outcome of a run, or of one node's part in it; one that finished has no cause."""

    state: Literal["finished", "failed", "stopped"]
    cause: Cause | None = None


@dataclass(frozen=True)
class RanksFailure:
    """The error that ended a node's ranks.

    Attributes:
        rank: its number in the whole run, if known.
        message: one to a few lines.
        curable: not an error of the rank itself, so that a new start may succeed: it was killed by
            a signal, it hung, or its group broke before it trained (status RANK_AGAIN).
        local: an error of this machine, by its cause, which need not come on another one.
    """

    rank: int | None
    message: str
    curable: bool = False
    local: bool = False

    @property
    def of_disk(self) -> bool:
        """Whether the disk of this machine took no writes."""
        return self.local and any(each in self.message for each in _NO_DISK)


def telling(records: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return, by node, the records that explain how a run ended; none if its last launch is open.

    `records` are those of supervisors: `state`, `generation`, `cause`. The nodes of a launch record
    the same verdict, except one that could no longer receive it: resumed from sleep or after a
    power cut, it only knows that the others were gone. Records of better informed nodes win.
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
    """Return the generation of a supervisor's record, or -1 if unknown."""
    generation = record.get("generation")
    return -1 if generation is None else int(generation)
