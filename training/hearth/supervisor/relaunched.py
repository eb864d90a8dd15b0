"""Ranks that cannot form new groups: each team has torchrun started anew.

So it is for the ranks of fsdp, pipeline and a user's script. They take part in teams as resident
ranks do, by the same votes: forming a group is starting torchrun, leaving one is ending it. The
supervisor says in their place what resident ranks would say.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from hearth.base.clock import boot_clock
from hearth.diagnose import is_echo
from hearth.ranks.control_protocol import (
    WATCHED,
    Form,
    Formed,
    Interrupt,
    Leave,
    LoadAlone,
    News,
    Order,
    Pause,
    RankEnded,
    Waiting,
)
from hearth.supervisor.channel import Said
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.decisions.events import Event, RankSaid, RanksFailed
from hearth.supervisor.decisions.verdicts import LASTING
from hearth.supervisor.launches import RankLaunches
from hearth.supervisor.requests import PAUSE, StopRequests
from hearth.supervisor.workers import KILL_GRACE
from hearth.transfer.checkpoints import newest_name, step_of


class RelaunchedRanks:
    """The ranks of a node that live for one team each. `generation` returns that of the last."""

    def __init__(
        self,
        context: SupervisorContext,
        requests: StopRequests,
        launches: RankLaunches,
        generation: Callable[[], int],
    ) -> None:
        self._context, self._requests, self._launches = context, requests, launches
        self._generation = generation
        self._scripted = context.spec.scripted
        self._launched, self._launched_at, self._lasted = 0.0, 0, 0

    async def run(self, start: int) -> None:
        """Wait for a team, with no ranks yet."""
        async with self._launches.changing:
            if not await self._launches.make_ready(start):
                return
        self._say_each(start, Waiting("new", 0, self._step, loaded=False))

    async def _launch(self, group: Form, start: int) -> None:
        """Run this node's torchrun in a group to its end."""
        launches = self._launches
        self._requests.forget_pause()
        who = ", ".join(group.nodes)
        self._context.say(f"training with {who}; starting torchrun (generation {group.generation})")
        # Hearth's own ranks report their work; a user's script does not.
        variables = {} if self._scripted else {WATCHED: "1"}
        async with launches.changing:
            launches.channel.expect(start)  # what an earlier launch has left
            if not await launches.run(start, group, **variables):
                return
        self._launched, self._launched_at = time.monotonic(), self._step
        self._say_each(start, Formed(group.generation, self._step, {}))
        await launches.until_exit(start)

    async def _end_launch(self, start: int, broken: Waiting) -> None:
        """End this node's torchrun, whose group is over."""
        async with self._launches.changing:
            await self._launches.workers.stop(KILL_GRACE)
        self._say_each(start, broken)

    def obey(self, order: Order) -> None:
        """Do what resident ranks would do by themselves."""
        launches = self._launches
        match order:
            case LoadAlone():
                self._say_each(launches.start, Waiting("new", 0, self._step, loaded=True))
            case Form():
                launches.add(self._launch(order, launches.start))
            case Interrupt(_, why):
                self._context.say(f"ending this node's ranks: {why}")
                broken = Waiting("broken", self._generation(), self._step, True, why)
                launches.begin(lambda start: self._end_launch(start, broken))
            case Pause():
                self._context.say(
                    "ending this node's ranks after the step, to start them in a new team"
                )
                self._requests.write_pause()
                if self._scripted:
                    launches.add(launches.workers.tell_to_end())
            case Leave():
                launches.watch.leave = order
                if launches.workers.ranks:  # of a script, which may save its state
                    launches.add(launches.workers.tell_to_end())
                else:
                    self._say_each(launches.start, RankEnded("stopped", self._step))

    def heard(self, local_rank: int, message: News) -> list[Event]:
        """Return the events of decisions in a message of a rank, or in its place."""
        if not isinstance(message, Waiting | Formed | RankEnded):  # of the rank itself
            return self._launches.watch.heard(local_rank, message, boot_clock())
        if not isinstance(message, Formed):
            self._launches.watch.rest()
        return [RankSaid(local_rank, message)]

    async def exited(self, status: int) -> list[Event]:
        """Note how torchrun ended: paused, at the end of the run, by another node, by an error."""
        requests, step = self._requests, self._step
        paused = requests.in_file() == PAUSE and not requests.stopping
        news: list[Event] = [stop] if (stop := requests.unheard()) else []
        if time.monotonic() - self._launched > LASTING:  # the steps of a script are unknown
            self._lasted += 1
        asked = requests.terminated or self._launches.watch.leave or (paused and self._scripted)
        # A user's script may exit with any status on SIGTERM: not a failure.
        if status == 0 or asked:
            if paused:
                requests.forget_pause()
                return news + self._each(Waiting("paused", self._generation(), step, loaded=True))
            return news + self._each(
                RankEnded("stopped" if requests.stopping else "finished", step)
            )
        failure = await self._launches.failure(status, None)
        if is_echo(failure.message):
            broken = Waiting("broken", self._generation(), step, True, failure.message)
            return news + self._each(broken)
        self._launches.ask_kernel()
        # Before its first checkpoint, or its first minutes, a run has no state to go on from.
        anew = failure.of_disk and self._context.spec.elastic
        local = failure.local and (step > 0 or anew)
        return [*news, RanksFailed(replace(failure, local=local), self.gained)]

    def _each(self, message: Waiting | RankEnded) -> list[Event]:
        """Return the words of each rank of this node, as if they were resident."""
        return [RankSaid(rank, message) for rank in range(self._context.spec.nproc)]

    def _say_each(self, start: int, message: Waiting | Formed | RankEnded) -> None:
        """Put into the queue what each rank of this node would say if it were resident."""
        for rank in range(self._context.spec.nproc):
            self._context.events.put_nowait(Said(start, rank, message))

    def ended(self) -> list[Event]:
        """Return that all ranks have ended, as they were asked to."""
        return self._each(RankEnded("stopped", self._step))

    @property
    def gained(self) -> int:
        """The checkpoints' steps, or long launches of a script, since this launch."""
        return self._step - self._launched_at

    @property
    def _step(self) -> int:
        """The step of the newest checkpoint here; of a script, how many launches lasted."""
        if self._scripted:
            return self._lasted
        return max(0, step_of(newest_name(self._context.spec.checkpoints)))
