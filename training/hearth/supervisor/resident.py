"""Resident ranks: they live on through a loss, take orders, and form new groups in place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hearth.base.clock import boot_clock
from hearth.base.interface import free_port, source_towards
from hearth.diagnose import failed_status, is_echo
from hearth.ranks.control_protocol import (
    CONTROL,
    LAYOUT,
    RANK_AGAIN,
    Form,
    Formed,
    Here,
    Interrupt,
    News,
    Order,
    RankEnded,
    Waiting,
    layout_text,
)
from hearth.supervisor.cause import RanksFailure
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.decisions.events import Event, RankSaid, RanksFailed
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.launches import RankLaunches
from hearth.supervisor.requests import RETRY, StopRequests


class ResidentRanks:
    """The ranks of a node that form groups in place.

    `known` returns their state, as decisions know it, and `bring_state` brings from other nodes
    what they need before they start.
    """

    def __init__(
        self,
        context: SupervisorContext,
        requests: StopRequests,
        launches: RankLaunches,
        known: Callable[[], LocalRanks],
        bring_state: Callable[[], Awaitable[None]],
    ) -> None:
        self._context, self._requests, self._launches = context, requests, launches
        self._known, self._bring_state = known, bring_state

    async def run(self, start: int) -> None:
        """Start the ranks, and put the end of torchrun into the queue."""
        spec, launches, record = self._context.spec, self._launches, self._context.record
        async with launches.changing:
            if not await launches.make_ready(start):
                return
            await self._bring_state()
            if (found := await launches.patiently(self._own_port, RETRY)) is None:
                return
            port, source = found
            generation = max(record.generation, spec.generation)
            clients = (spec.address, source)
            alone = Form(generation, (spec.node,), spec.address, port, clients, fresh=True)
            self._context.say(f"this node is ready; starting torchrun (generation {generation})")
            variables = {CONTROL: "1", LAYOUT: layout_text(spec.layout)}
            if not await launches.run(start, alone, **variables):
                return
            record.write(spec.record)
        await launches.until_exit(start)

    async def _own_port(self) -> tuple[int, str]:
        """Return a free port at this node's address, and from where its programs connect to that.

        Raises `LaunchError` or `OSError` while a network that was lost has taken the address along.
        """
        address = self._context.spec.address
        return free_port(address), source_towards(address)

    def obey(self, order: Order) -> None:
        """Give the ranks an order."""
        if isinstance(order, Interrupt):
            self._context.say(f"interrupting generation {order.generation}: {order.why}")
        self._launches.watch.ordered(order, boot_clock())
        self._launches.channel.tell(order)

    def heard(self, local_rank: int, message: News) -> list[Event]:
        """Return the events of decisions in a message of a rank."""
        launches = self._launches
        if isinstance(message, Here) and launches.watch.leave:
            launches.channel.tell(launches.watch.leave)
        news = launches.watch.heard(local_rank, message, boot_clock())
        if isinstance(message, Waiting | Formed):
            return [RankSaid(local_rank, message), *news]
        return news

    async def exited(self, status: int) -> list[Event]:
        """Return the events of decisions in the end of torchrun."""
        watch = self._launches.watch
        news: list[Event] = [stop] if (stop := self._requests.unheard()) else []
        if status == 0 and (watch.leave or watch.ended):
            return news + self.ended()
        if self._known().failure or self._requests.terminated:
            return news
        failed = RanksFailed(await self._failure(status), self.gained)
        self._launches.ask_kernel()
        return [*news, failed]

    async def _failure(self, status: int) -> RanksFailure:
        """Return the error that ended this node's ranks."""
        spec = self._context.spec
        if status == 0:
            return RanksFailure(None, "torchrun ended with status 0 before the training was over")
        found = await self._launches.failure(status, sum(spec.nprocs[: spec.rank]))
        again = RANK_AGAIN in (status, failed_status(self._launches.log.text()))
        message = "its group broke before it trained" if again else found.message
        curable = again or found.curable or is_echo(found.message)
        return RanksFailure(found.rank, message, curable, found.local)

    def ended(self) -> list[Event]:
        """Return that all ranks have ended, as they told it or were told to."""
        told = self._launches.watch.ended
        stopped = RankEnded("stopped", self._known().step)
        count = self._context.spec.nproc
        return [RankSaid(rank, told.get(rank, stopped)) for rank in range(count)]

    @property
    def gained(self) -> int:
        """The steps that the ranks have done in their last group."""
        return self._launches.watch.steps
