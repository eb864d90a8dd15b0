"""The common state of a node's ranks, from their messages to the supervisor. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from hearth.ranks.control_protocol import Form, Formed, LoadAlone, RankEnded, Waiting
from hearth.supervisor.cause import RanksFailure
from hearth.supervisor.messages import RanksState

_Place = Literal[
    "starting", "new", "loading", "loaded", "forming", "in", "broken", "paused", "over"
]

_WAITING: frozenset[_Place] = frozenset(("new", "loaded", "broken", "paused"))


@dataclass(frozen=True)
class Rank:
    """The place of one rank, the generation it trained in last, and the steps it has done."""

    place: _Place = "starting"
    trained: int = 0
    step: int = 0


@dataclass(frozen=True)
class LocalRanks:
    """The ranks of this node: their state, and their part of the node's report.

    Attributes:
        ranks: by local rank.
        failure: the error that ended them.
        choices: values that a rank needs to load alone; None until they know them.
        ended: "finished" or "stopped", once one has ended so.
        why: the reason why they left their last group, or could not form it.
        gained: the steps that they did in their last group before they failed.
        away: whether there are none, as the owner wants the machine.
    """

    ranks: tuple[Rank, ...]
    failure: RanksFailure | None = None
    choices: dict[str, Any] | None = None
    ended: str = ""
    why: str = ""
    gained: int = 0
    away: bool = False

    @classmethod
    def starting(cls, nproc: int) -> LocalRanks:
        """Return `nproc` ranks that were started, or are about to be."""
        return cls((Rank(),) * nproc)

    def restarted(self) -> LocalRanks:
        """Return the ranks once all were started anew, or are about to be."""
        return self.starting(len(self.ranks))

    def resting(self) -> LocalRanks:
        """Return the ranks of a node that has none until they are started again."""
        return replace(self.restarted(), away=True)

    def ordered(self, order: LoadAlone | Form) -> LocalRanks:
        """Return the ranks once all were given an order; those that do not wait for it miss it."""

        def after(rank: Rank) -> Rank:
            if isinstance(order, LoadAlone):
                return replace(rank, place="loading") if rank.place == "new" else rank
            return replace(rank, place="forming") if rank.place in _WAITING else rank

        choices = order.choices if isinstance(order, LoadAlone) else self.choices
        return replace(self, ranks=tuple(map(after, self.ranks)), choices=choices)

    def said(self, local_rank: int, message: Waiting | Formed | RankEnded) -> LocalRanks:
        """Return the ranks once one told this."""
        rank = replace(self.ranks[local_rank], step=message.step)
        match message:
            case Waiting("new", loaded=loaded, message=why):
                heard = replace(self, why=why or self.why)
                return heard._with(local_rank, replace(rank, place="loaded" if loaded else "new"))
            case Waiting("paused"):
                return self._with(local_rank, replace(rank, place="paused"))
            case Waiting(message=why):
                return replace(self, why=why)._with(local_rank, replace(rank, place="broken"))
            case Formed(generation, _, choices):
                heard = replace(self, choices=choices)
                return heard._with(local_rank, replace(rank, place="in", trained=generation))
            case RankEnded(outcome):
                return replace(self, ended=outcome)._with(local_rank, replace(rank, place="over"))

    def left(self, local_rank: int) -> LocalRanks:
        """Return the ranks once one has died: the group is over for it."""
        rank = replace(self.ranks[local_rank], place="starting")
        return replace(self, why="a rank of it ended")._with(local_rank, rank)

    def _with(self, local_rank: int, rank: Rank) -> LocalRanks:
        ranks = (*self.ranks[:local_rank], rank, *self.ranks[local_rank + 1 :])
        return replace(self, ranks=ranks)

    @property
    def step(self) -> int:
        """The greatest number of steps that a rank has done."""
        return max(rank.step for rank in self.ranks)

    @property
    def trained(self) -> int:
        """Generation of the last group that all of these ranks have trained in; 0: none."""
        return min(rank.trained for rank in self.ranks)

    @property
    def state(self) -> RanksState:
        """The state for the node's report. Ranks that ended count with those that did not."""
        if self.failure:
            return "failed"
        if self.away:
            return "away"
        places = {rank.place for rank in self.ranks} - {"over"}
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
