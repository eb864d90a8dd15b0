"""The watch on a node's ranks: what they do, how far they got, and whether one hangs."""

from __future__ import annotations

from hearth.base.clock import boot_clock
from hearth.ranks.control_protocol import (
    EVALUATION,
    FOR_OTHERS,
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
from hearth.supervisor.hang import HangWatch
from hearth.supervisor.open_step import OpenStep
from hearth.supervisor.spec import Spec

ASLEEP = 5.0
"""Seconds that this process hears nothing of its ranks, after which the machine or it has slept.

Less than any rank may stand still, however long the others may be silent.
"""


class RanksWatch:
    """Follows the ranks of one start by their messages, and by the orders that they got.

    Attributes:
        open_step: the step that they are in.
        steps: the steps that they have done in their last group.
        leave: the order to end, if they got it.
        ended: by local rank, that its training is over; torchrun has yet to end.
        gone: the local ranks that have closed their connection.
    """

    def __init__(self, spec: Spec) -> None:
        self._count = spec.nproc
        self._hangs = HangWatch(spec.node, sum(spec.nprocs[: spec.rank]))
        self.open_step = OpenStep()
        self._ticked = boot_clock()
        self.clear()

    def clear(self) -> None:
        """Forget the ranks: others start, or none."""
        self._hangs.clear()
        self.open_step.clear()
        self.leave: Leave | None = None
        self.ended: dict[int, RankEnded] = {}
        self.gone: set[int] = set()
        self.steps = 0
        self._evaluating: set[int] = set()
        self._formed_at: dict[int, int] = {}

    def started(self) -> None:
        """Note that torchrun was started."""
        for local_rank in range(self._count):
            self._hangs.started(local_rank, boot_clock())

    def ordered(self, order: Order) -> None:
        """Note an order to all ranks."""
        if isinstance(order, Leave):
            self.leave = order
        if isinstance(order, LoadAlone | Form | Interrupt | Leave):
            for local_rank in range(self._count):
                self._hangs.ordered(local_rank, order, boot_clock())

    def heard(self, local_rank: int, message: News) -> list[Event]:
        """Note a message of a rank; return what it tells of the evaluation."""
        before, now = bool(self._evaluating), boot_clock()
        match message:
            case Doing():
                self._hangs.began(local_rank, message, now)
                self.open_step.began(local_rank, message, now)
                if formed_at := self._formed_at.get(local_rank):
                    self.steps = max(self.steps, message.step - formed_at)
                if message.what in EVALUATION:
                    self._evaluating.add(local_rank)
                elif message.what != FOR_OTHERS:
                    self._evaluating.discard(local_rank)
            case Alive():
                self._hangs.alive(local_rank, now)
            case RankEnded():
                self._hangs.rested(local_rank)
                self.ended[local_rank] = message
            case Waiting() | Formed():
                self._evaluating.discard(local_rank)
                self.open_step.rested(local_rank)
                self._hangs.rested(local_rank)
                if isinstance(message, Formed):
                    self._hangs.formed(local_rank, now)
                    self._formed_at[local_rank], self.steps = message.step + 1, 0
        return [] if before == bool(self._evaluating) else [Evaluates(not before)]

    def left(self, local_rank: int) -> None:
        """Note that a rank has closed its connection."""
        self.gone.add(local_rank)
        self._hangs.left(local_rank, boot_clock())

    def rest(self) -> None:
        """Note that no rank does anything that is bounded in time."""
        self._hangs.clear()

    def hanging(self) -> tuple[int, str] | None:
        """Return the rank that hangs, and a sentence that says so. Call it several times a second.

        Time in which the machine slept does not count.
        """
        now = boot_clock()
        passed, self._ticked = now - self._ticked, now
        if passed > ASLEEP:
            self._hangs.slept(passed)
        return self._hangs.hanging(now)

    @property
    def all_ended(self) -> bool:
        """Whether all ranks have done all that they had to, and only torchrun is still there."""
        told = self.leave or len(self.ended) == self._count
        return bool(told) and len(self.gone) == self._count
