"""The ranks of a node: started, watched, and started again, in one of two ways."""

from __future__ import annotations

from collections.abc import Callable

from hearth.base.clock import boot_clock
from hearth.ranks.control_protocol import Disk
from hearth.supervisor.cause import RanksFailure
from hearth.supervisor.channel import Left, Said
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.decisions.events import Event, RankLeft, RanksFailed
from hearth.supervisor.launches import NotStarted, RankLaunches, RanksExited
from hearth.supervisor.relaunched import RelaunchedRanks
from hearth.supervisor.resident import ResidentRanks

ASLEEP = 5.0
"""Seconds that this process hears nothing of its ranks, after which the machine or it has slept.

Less than any rank may stand still, however long the others may be silent.
"""


class RanksKeeper:
    """Starts the ranks of a node, and turns what is heard of them into events of decisions.

    `on_disk` gets the reason why the node's disk takes no writes, "" once it does again.
    """

    def __init__(
        self,
        context: SupervisorContext,
        launches: RankLaunches,
        kind: ResidentRanks | RelaunchedRanks,
        on_disk: Callable[[str], None],
    ) -> None:
        self._context, self._launches, self._kind = context, launches, kind
        self._on_disk = on_disk
        self._ticked = boot_clock()

    def start(self, why: str) -> None:
        """Start this node's ranks, after ending those of an earlier start for the reason `why`."""
        if why:
            self._context.say(f"starting this node's ranks again: {why}")
        self._launches.begin(self._kind.run)

    def rest(self) -> None:
        """End this node's ranks, if any live, and have none until they are started again."""
        self._launches.begin(lambda _: self._end())

    async def _end(self) -> None:
        async with self._launches.changing:
            await self._launches.clear()

    async def news(self, event: Said | Left | RanksExited | NotStarted) -> list[Event]:
        """Return the events of decisions in this one; none if it is of an earlier start."""
        watch = self._launches.watch
        if event.start != self._launches.start:
            return []
        match event:
            case Said(_, _, Disk(why)):
                goes_on = f"this node goes on without checkpoints: {why}"
                self._context.say(goes_on if why else "the disk has room")
                self._on_disk(why)
                return []
            case Said(_, local_rank, message):
                return self._kind.heard(local_rank, message)
            case Left(_, local_rank):
                watch.left(local_rank, boot_clock())
                expected = watch.leave or local_rank in watch.ended
                # Of ranks that live for one team torchrun tells how they ended.
                resident = self._context.spec.resident
                return [RankLeft(local_rank)] if resident and not expected else []
            case RanksExited(_, status):
                self._context.record.exit_code = status
                self._context.say(f"torchrun ended with status {status}")
                found = await self._kind.exited(status)
            case NotStarted(_, message):
                found = [RanksFailed(RanksFailure(None, message, local=True), self._kind.gained)]
        watch.rest()
        return found

    def hanging(self) -> list[Event]:
        """Return that this node's ranks failed, if one hangs. Call it several times a second."""
        watch, spec = self._launches.watch, self._context.spec
        if spec.scripted and self._launches.workers.ranks >= spec.nproc:
            watch.rest()  # Of a script the start is all that is bounded.
        now = boot_clock()
        passed, self._ticked = now - self._ticked, now
        if passed > ASLEEP:
            watch.slept(passed)
        if not (found := watch.hanging(now)):
            return []
        rank, message = found
        self._context.say(f"{message}; killing this node's ranks")
        watch.rest()
        if watch.all_ended:  # They have done all that they had to.
            return self._kind.ended()
        # Their new start ends them. The other nodes must not wait until the kernel lets go.
        return [RanksFailed(RanksFailure(rank, message, curable=True), self._kind.gained)]
