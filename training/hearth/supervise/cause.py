"""Why a run, or one launch of it, ended: one answer, the same on every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["waiting", "running", "finished", "failed", "stopped"]
"""A run on a node: waiting for the others, training, or one of the three ends."""

Kind = Literal["rank_failed", "node_lost", "node_back", "not_ready", "stopped"]

ENDS: frozenset[State] = frozenset(("finished", "failed", "stopped"))


@dataclass(frozen=True)
class Cause:
    """The node to look at, the rank in the world (None: the whole node), and one to a few lines."""

    node: str
    rank: int | None
    kind: Kind
    message: str


@dataclass(frozen=True)
class Verdict:
    """How a launch ended, and with it the run, unless it is to be launched `again`.

    A run that finished has no cause.
    """

    state: State | Literal["again"]
    cause: Cause | None = None
