"""The events that a node decides on: messages of other nodes, of its ranks, of its owner."""

from __future__ import annotations

from dataclasses import dataclass

from hearth.ranks.control_protocol import Formed, RankEnded, Waiting
from hearth.supervisor.cause import RanksFailure
from hearth.supervisor.decisions.actions import SaveVotes
from hearth.supervisor.messages import Message, Reaches, Stop


@dataclass(frozen=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True)
class Joined:
    """A node is connected."""

    node: str


@dataclass(frozen=True)
class Gone:
    """A node is no longer connected, or cannot be: `why` and `taken` as in `state.Absence`."""

    node: str
    why: str
    taken: str = ""


@dataclass(frozen=True)
class PeerSaid:
    """A connected node sent a message, or this one sent it to itself as to the others."""

    node: str
    message: Message


@dataclass(frozen=True)
class RankSaid:
    """A rank of this node tells that it waits, is in its group, or has ended."""

    local_rank: int
    message: Waiting | Formed | RankEnded


@dataclass(frozen=True)
class RankLeft:
    """A rank of this node died. torchrun tells why a moment later; its group is over now."""

    local_rank: int


@dataclass(frozen=True)
class RanksFailed:
    """This node's ranks were ended by an error, `gained` steps after they formed their group."""

    failure: RanksFailure
    gained: int = 0


@dataclass(frozen=True)
class Evaluates:
    """A rank of this node evaluates now, or none does any more."""

    now: bool


@dataclass(frozen=True)
class Holds:
    """This node's newest checkpoint, while it has no ranks."""

    checkpoint: str


@dataclass(frozen=True)
class OwnerSays:
    """The owner wants the machine, for the reason `why`; "": the run may have it."""

    why: str


@dataclass(frozen=True)
class Leaves:
    """This node has to leave the others in order: its machine shuts down, or its turn is over."""

    why: str


@dataclass(frozen=True)
class StopAsked:
    """The run was asked to stop on this node."""

    stop: Stop


@dataclass(frozen=True)
class Saved:
    """The disk has the votes of an action, or not: `failure` is the reason."""

    save: SaveVotes
    failure: str = ""


Event = (
    Tick
    | Joined
    | Gone
    | PeerSaid
    | RankSaid
    | RankLeft
    | RanksFailed
    | Evaluates
    | Reaches
    | Holds
    | OwnerSays
    | Leaves
    | StopAsked
    | Saved
)
