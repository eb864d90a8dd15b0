"""The watch on a node's ranks: what they do, how far they got, and whether one hangs. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hearth.ranks.control_protocol import (
    ANSWERS,
    EVALUATION,
    FOR_OTHERS,
    MICRO_BATCH,
    OPTIMIZER,
    SEARCH,
    Alive,
    Doing,
    Form,
    Formed,
    Interrupt,
    Leave,
    LoadAlone,
    News,
    Order,
    RankEnded,
    Waiting,
)
from hearth.supervisor.decisions.events import Evaluates, Event
from hearth.supervisor.messages import Beat
from hearth.supervisor.open_step import OldStep, old_step

LEAST = 20.0
"""Seconds that any piece of work may take, whatever was expected of it."""

FORMING = 60.0
"""Seconds until a rank begins what follows the order to load, to end or to form a group, or a new
group.

Its own timeout for a group is 30.
"""

STARTING = 600.0
"""Seconds from the start of torchrun until each rank has told that it is there."""

SILENT = 120.0
"""Seconds without a sign of life after which a rank hangs, however long its work may take.

A library may hold Python's lock for some seconds, as while it compiles a kernel.
"""

ENDING = 120.0
"""Seconds from the last word of a rank to the end of torchrun, which gives its other ranks 30."""

_OF_A_STEP = (ANSWERS, MICRO_BATCH, OPTIMIZER, SEARCH, FOR_OTHERS)
"""Pieces of work that belong to a step; any other one ends it."""


@dataclass
class _Work:
    """Work that may take `allowed` seconds (0: no bound); `heard` is the last sign of life."""

    what: str
    since: float
    allowed: float
    heard: float

    @property
    def due(self) -> float:
        """Time when the rank counts as hanging."""
        return min(self.since + self.allowed, self.heard + SILENT)


@dataclass
class _Rank:
    """The messages of a rank: `since` when it is in `step`, and `doing` what of its own in it."""

    work: _Work | None = None
    step: int = 0
    since: float | None = None
    doing: str = ""
    sender: str = ""
    mbit: float = 0.0
    evaluates: bool = False
    formed_at: int | None = None
    gone: bool = False

    def out_of_step(self) -> None:
        """Note that it is in no step: it may take the same one again in another group."""
        self.step, self.since, self.doing, self.sender = 0, None, "", ""
        self.evaluates = False

    def begin(self, doing: Doing, now: float) -> None:
        """Note that it began a piece of work, or still waits for others."""
        what = f"step {doing.step}, {doing.what}" if doing.step else doing.what
        if doing.part:
            what += f" {doing.part}"
        allowed = max(LEAST, doing.allowed) if doing.allowed else 0.0
        self.work = _Work(what, now, allowed, now)
        if doing.what not in _OF_A_STEP:
            self.since = None
        elif doing.step > self.step:
            self.step, self.since = doing.step, now
        self.doing = "" if doing.what == FOR_OTHERS else doing.what
        self.sender, self.mbit = doing.sender, doing.mbit
        if doing.what != FOR_OTHERS:
            self.evaluates = doing.what in EVALUATION


class RanksWatch:
    """Follows the ranks of one start by their messages, and by the orders that they got.

    Args:
        node: name of the node.
        first_rank: number of its first rank in the run.
        count: number of its ranks.

    Attributes:
        steps: the steps that they have done in their last group.
        leave: the order to end, if they got it.
        ended: by local rank, that its training is over; torchrun has yet to end.
    """

    def __init__(self, node: str, first_rank: int, count: int) -> None:
        self._node, self._first_rank = node, first_rank
        self._ranks = [_Rank() for _ in range(count)]
        self.clear()

    def clear(self) -> None:
        """Forget the ranks: others start, or none."""
        self._ranks = [_Rank() for _ in self._ranks]
        self.leave: Leave | None = None
        self.ended: dict[int, RankEnded] = {}
        self.steps = 0

    def started(self, now: float) -> None:
        """Note that torchrun was started; its ranks tell nothing until they are there."""
        for rank in self._ranks:
            rank.work = _Work("its start", now, STARTING, now + STARTING)

    def ordered(self, order: Order, now: float) -> None:
        """Note an order that all ranks have to follow soon.

        A rank that waits for others must come out of its group at once when that is interrupted;
        one at work of its own comes out when it is done.
        """
        for rank in self._ranks:
            match order:
                case LoadAlone():
                    rank.work = _Work("the order to load", now, FORMING, now)
                case Leave():
                    self.leave = order
                    rank.work = _Work("the order to end", now, FORMING, now)
                case Form(generation):
                    what = f"forming the group of generation {generation}"
                    rank.work = _Work(what, now, FORMING, now)
                case Interrupt() if rank.work and not rank.work.allowed:
                    what = f"{rank.work.what}, after its group was interrupted"
                    rank.work = _Work(what, now, LEAST, now)

    def heard(self, local_rank: int, message: News, now: float) -> list[Event]:
        """Note a message of a rank; return whether one evaluates, if that has changed."""
        rank, evaluated = self._ranks[local_rank], self._evaluates
        match message:
            case Doing():
                rank.begin(message, now)
                if rank.formed_at is not None:
                    self.steps = max(self.steps, message.step - rank.formed_at)
            case Alive() if rank.work:
                rank.work.heard = now
            case RankEnded():
                rank.work = None
                self.ended[local_rank] = message
            case Waiting():
                rank.out_of_step()
                rank.work = None
            case Formed(_, step):
                rank.out_of_step()
                rank.work = _Work("its first work in the group", now, FORMING, now)
                rank.formed_at, self.steps = step + 1, 0
        return [] if evaluated == self._evaluates else [Evaluates(not evaluated)]

    @property
    def _evaluates(self) -> bool:
        return any(rank.evaluates for rank in self._ranks)

    def left(self, local_rank: int, now: float) -> None:
        """Note that a rank has closed its connection, so that torchrun ends soon."""
        rank = self._ranks[local_rank]
        rank.gone = True
        rank.work = _Work("exiting, not yet reported by torchrun", now, ENDING, now)

    def rest(self) -> None:
        """Note that no rank does anything that is bounded in time."""
        for rank in self._ranks:
            rank.work = None

    def slept(self, seconds: float) -> None:
        """Note that the machine, or this process, was suspended for `seconds`."""
        for rank in self._ranks:
            if rank.work:
                rank.work.since += seconds
                rank.work.heard += seconds

    @property
    def all_ended(self) -> bool:
        """Whether all ranks have done all that they had to, and only torchrun is still there."""
        told = self.leave or len(self.ended) == len(self._ranks)
        return bool(told) and all(rank.gone for rank in self._ranks)

    def hanging(self, now: float) -> tuple[int, str] | None:
        """Return the rank of the run that hangs, and a sentence that says so; None without one.

        Of several, the one that began first: the others may wait for it.
        """
        works = [(rank.work, number) for number, rank in enumerate(self._ranks) if rank.work]
        for work, number in sorted(works, key=lambda each: each[0].since):
            if work.allowed and now > work.due:
                rank, seconds = self._first_rank + number, now - work.since
                given = f"was given {work.allowed:.0f} s"
                if seconds <= work.allowed:
                    given = f"has given no sign of life for {now - work.heard:.0f} s"
                return rank, (
                    f"rank {rank} of {self._node} did nothing for {seconds:.0f} s in {work.what}: "
                    f"it hangs, as a stuck driver or a dead network disk makes it (it {given})"
                )
        return None

    @property
    def beat(self) -> Beat:
        """The heartbeat for the other nodes."""
        step = max((rank.step for rank in self._ranks), default=0)
        doing = next((rank.doing for rank in self._ranks if rank.doing), "")
        over_link = next((rank for rank in self._ranks if rank.sender), _Rank())
        return Beat(step, doing, over_link.sender, over_link.mbit)

    def old_step(self, beats: Mapping[str, Beat], now: float) -> OldStep | None:
        """Return the step of these ranks, None unless it is old.

        `beats` are the last heartbeats of the other nodes of their group.
        """
        every = {self._node: self.beat, **beats}
        steps = [(rank.since, rank.step) for rank in self._ranks if rank.since]
        since, step = min(steps, default=(now, 0))
        return old_step(step, now - since, every) if step else None
