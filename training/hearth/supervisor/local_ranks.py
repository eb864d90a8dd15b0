"""The state of a node's ranks together, from what each of them tells its supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hearth.ranks.orders import Ended, Form, Formed, Load, Waiting
from hearth.supervisor.cause import Failure
from hearth.supervisor.messages import RanksState

_Place = Literal[
    "starting", "new", "loading", "loaded", "forming", "in", "broken", "paused", "over"
]

_WAITING: frozenset[_Place] = frozenset(("new", "loaded", "broken", "paused"))


@dataclass
class _Rank:
    place: _Place = "starting"
    trained: int = 0
    step: int = 0
    formed_at: int = 0
    gained: int = 0


class LocalRanks:
    """The ranks of this node: what they do, and what the node's report says of them.

    Args:
        nproc: number of ranks of this node.
    """

    def __init__(self, nproc: int) -> None:
        self._nproc = nproc
        self.restarted()

    def restarted(self) -> None:
        """Note that all ranks were started anew, or are about to be."""
        self._ranks = [_Rank() for _ in range(self._nproc)]
        self.failure: Failure | None = None
        self.choices: dict[str, Any] | None = None
        self.ended = ""
        self.why = ""
        self._away = False

    def rest(self) -> None:
        """Note that the node has no ranks until they are started again, as the house wants it."""
        self.restarted()
        self._away = True

    def failed(self, failure: Failure) -> None:
        """Note that the ranks were ended by an error."""
        self.failure = failure

    def told(self, order: Load | Form) -> None:
        """Note that all ranks were given this order; those that do not wait for it miss it."""
        if isinstance(order, Load):
            self.choices = order.choices
        for rank in self._ranks:
            if isinstance(order, Form) and rank.place in _WAITING:
                rank.place = "forming"
            elif isinstance(order, Load) and rank.place == "new":
                rank.place = "loading"

    def said(self, local_rank: int, message: Waiting | Formed | Ended) -> None:
        """Note what a rank told."""
        rank = self._ranks[local_rank]
        rank.step = message.step
        match message:
            case Waiting("new", loaded=loaded, message=why):
                rank.place = "loaded" if loaded else "new"
                self.why = why or self.why
            case Waiting("paused"):
                rank.place = "paused"
            case Waiting(message=why):
                rank.place, self.why = "broken", why
            case Formed(generation, step, choices):
                rank.place, rank.trained, self.choices = "in", generation, choices
                rank.formed_at, rank.gained = step, 0
            case Ended(outcome):
                rank.place, self.ended = "over", outcome

    def does(self, local_rank: int, step: int) -> None:
        """Note that a rank is in this step, counted from 1."""
        rank = self._ranks[local_rank]
        if rank.place == "in":
            rank.gained = max(rank.gained, step - 1 - rank.formed_at)

    def left(self, local_rank: int) -> None:
        """Note that a rank has died. torchrun tells why a moment later; its group is over now."""
        self._ranks[local_rank].place, self.why = "starting", "a rank of it ended"

    @property
    def step(self) -> int:
        """The greatest number of steps that a rank has done."""
        return max(rank.step for rank in self._ranks)

    @property
    def gained(self) -> int:
        """The greatest number of steps that a rank has done in its last group."""
        return max(rank.gained for rank in self._ranks)

    @property
    def trained(self) -> int:
        """Generation of the last group in which all of these ranks have trained; 0: none."""
        return min(rank.trained for rank in self._ranks)

    @property
    def state(self) -> RanksState:
        """The state for the node's report. Ranks that ended count with those that did not."""
        if self.failure:
            return "failed"
        if self._away:
            return "away"
        places = {rank.place for rank in self._ranks} - {"over"}
        if not places:
            return "ended"
        if "starting" in places:
            return "starting"
        if places & {"forming", "in"}:
            if "broken" in places:
                return "breaking"
            return "forming" if "forming" in places else "training"
        if places & {"broken", "paused"}:
            return "paused" if places == {"paused"} else "broken"
        if "loading" in places:
            return "loading"
        return "ready" if "new" in places else "loaded"
