"""The supervisor of a node whose ranks cannot form new groups: each team has torchrun started anew.

So it is for the ranks of fsdp, pipeline and a user's script. They take part in teams as resident
ranks do, by the same votes: forming a group is starting torchrun, leaving one is ending it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

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
from hearth.supervisor.decisions.events import Event, RankSaid
from hearth.supervisor.decisions.verdicts import LASTING
from hearth.supervisor.life import KILL_GRACE, PAUSE
from hearth.supervisor.member import Member
from hearth.supervisor.messages import Stop
from hearth.supervisor.ranks import NotStarted, RanksExited, Said
from hearth.supervisor.workers import command


class RelaunchedMember(Member):
    """Takes part in teams as `Member` does, with ranks that live for one team each."""

    _launched = 0.0
    _launched_at = 0
    _lasted = 0

    # Starting and ending

    async def _run_ranks(self, start: int) -> None:
        """Wait for a team, with no ranks yet."""
        async with self._starting:
            if start > 1:
                await self._end_former_ranks()
            if (self._last or start > 1) and not await self._gpus_answer():
                return
        self._each_says(start, Waiting("new", 0, self._gained(), loaded=False))

    async def _launch(self, group: Form, start: int) -> None:
        """Run this node's torchrun in a group to its end."""
        spec = self._spec
        words = command(spec, group)
        self._forget_pause()
        self._begin_launch(words)
        who = ", ".join(group.nodes)
        self._say(f"training with {who}; starting torchrun (generation {group.generation})")
        try:
            async with self._starting:
                self._channel.expect(self._start)  # what an earlier launch has left
                await self._workers.start(words, group, **self._watched)
                self._watch_start()
        except OSError as error:
            message = f"cannot start {words[0]}: {error.strerror}"
            self._say(message)
            self._events.put_nowait(NotStarted(start, message))
            return
        self._launched, self._launched_at = time.monotonic(), self._gained()
        self._each_says(start, Formed(group.generation, self._gained(), {}))
        self._events.put_nowait(RanksExited(start, await self._workers.ended()))

    @property
    def _watched(self) -> dict[str, str]:
        """The variable that has Hearth's own ranks report their work; a user's script does not."""
        return {} if self._spec.scripted else {WATCHED: "1"}

    def _end_hanging_ranks(self) -> list[Event]:
        if self._spec.scripted and self._workers.ranks >= self._spec.nproc:
            self._hangs.clear()  # of a script the start is all that is bounded
        return super()._end_hanging_ranks()

    async def _end_launch(self, start: int, broken: Waiting) -> None:
        """End this node's torchrun, whose group is over."""
        async with self._starting:
            await self._workers.stop(KILL_GRACE)
        self._each_says(start, broken)

    # Orders

    def _tell_ranks(self, order: Order) -> None:
        """Carry out an order that resident ranks would be given."""
        match order:
            case LoadAlone():
                self._each_says(self._start, Waiting("new", 0, self._gained(), loaded=True))
            case Form():
                self._of_launch.add(self._spawn(self._launch(order, self._start)))
            case Interrupt(_, why):
                self._say(f"ending this node's ranks: {why}")
                for task in self._of_launch:
                    task.cancel()
                self._forget_ranks()  # what exits now is no news
                generation, step = self._state.own.generation, self._gained()
                broken = Waiting("broken", generation, step, loaded=True, message=why)
                self._of_launch = {self._spawn(self._end_launch(self._start, broken))}
            case Pause():
                self._say("ending this node's ranks after the step, to start them in a new team")
                # Mode "x" keeps a stop request that a user has just written.
                with suppress(OSError), self._spec.stop_file.open("x") as file:
                    file.write(PAUSE)
                if self._spec.scripted:
                    self._of_launch.add(self._spawn(self._workers.tell_to_end()))
            case Leave() if self._workers.ranks:
                self._leave = order
                self._of_launch.add(self._spawn(self._workers.tell_to_end()))
            case Leave():
                self._leave = order
                self._each_says(self._start, RankEnded("stopped", self._gained()))

    def _stop_ranks(self, stop: Stop) -> None:
        super()._stop_ranks(stop)
        if self._spec.scripted and not stop.now and not self._terminated:
            self._terminated = True
            self._tasks.add(self._spawn(self._workers.tell_to_end()))
            self._tasks.add(self._spawn(self._stop_after_grace()))

    # News

    async def _ranks_exited(self, status: int) -> list[Event]:
        """Note how torchrun ended: paused, at the end of the run, by another node, by an error."""
        asked = self._requested_stop()
        news = self._note_exit(status)
        if time.monotonic() - self._launched > LASTING:  # the steps of a script are unknown
            self._lasted += 1
        paused = asked == PAUSE and not self._stopping
        generation, step = self._state.own.generation, self._gained()
        # A user's script may exit with any status on SIGTERM: not a failure.
        if status == 0 or self._terminated or self._leave or (paused and self._spec.scripted):
            if paused:
                self._forget_pause()
                end: Waiting | RankEnded = Waiting("paused", generation, step, loaded=True)
            else:
                end = RankEnded("stopped" if self._stopping else "finished", step)
            return news + self._each(end)
        # In a thread: while a long log is read, the other nodes must hear from this one.
        failure = await asyncio.to_thread(self._log.failure, status, None)
        if is_echo(failure.message):
            broken = Waiting("broken", generation, step, loaded=True, message=failure.message)
            return news + self._each(broken)
        self._ask_kernel()
        # Before its first checkpoint, or its first minutes, a run has no state to wait for.
        failure = replace(failure, local=failure.local and (step > 0 or self._spec.elastic))
        return news + self._ranks_failed(failure)

    def _hear_rank(self, local_rank: int, message: News) -> list[Event]:
        if not isinstance(message, Waiting | Formed | RankEnded):  # of the rank itself
            return super()._hear_rank(local_rank, message)
        if not isinstance(message, Formed):
            self._hangs.rested(local_rank)
        return [RankSaid(local_rank, message)]

    def _each(self, message: Waiting | RankEnded) -> list[Event]:
        """Return the words of each rank of this node, as if they were resident."""
        self._hangs.clear()
        return [RankSaid(local_rank, message) for local_rank in range(self._spec.nproc)]

    def _each_says(self, start: int, message: Waiting | Formed | RankEnded) -> None:
        """Put into the queue what each rank of this node would say if it were resident."""
        for local_rank in range(self._spec.nproc):
            self._events.put_nowait(Said(start, local_rank, message))

    def _steps_gained(self) -> int:
        return self._gained() - self._launched_at

    def _gained(self) -> int:
        """Return the step of the newest checkpoint here; of a script, how many launches lasted."""
        if self._spec.scripted:
            return self._lasted
        names = (path.name.removeprefix("step-") for path in self._spec.checkpoints.glob("step-*"))
        return max((int(name) for name in names if name.isdigit()), default=0)
