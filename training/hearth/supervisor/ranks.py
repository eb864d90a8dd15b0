"""The resident ranks of a node: started, given orders over a socket, watched and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.errors import LaunchError
from hearth.base.interface import free_port, source_towards
from hearth.diagnose import failed_status, is_echo
from hearth.ranks.control_protocol import (
    CONTROL,
    EVALUATION,
    FOR_OTHERS,
    LAYOUT,
    RANK_AGAIN,
    SOCKET,
    Alive,
    Disk,
    Doing,
    Form,
    Formed,
    Here,
    Interrupt,
    Leave,
    LoadAlone,
    News,
    Order,
    ProtocolError,
    RankEnded,
    decode,
    encode,
    layout_text,
    listen_for_ranks,
)
from hearth.supervisor.cause import RanksFailure
from hearth.supervisor.decisions.events import Evaluates, Event, RankLeft, RankSaid, RanksFailed
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.hang import HangWatch
from hearth.supervisor.life import RETRY, NodeSupervisor
from hearth.supervisor.open_step import OpenStep
from hearth.supervisor.spec import Spec
from hearth.supervisor.workers import command


@dataclass(frozen=True)
class Said:
    """A rank of this node, of this start of the ranks, said something."""

    start: int
    local_rank: int
    message: News


@dataclass(frozen=True)
class Left:
    """A rank of this node, of this start of the ranks, closed its connection: it ended."""

    start: int
    local_rank: int


class Channel:
    """Accepts this node's `count` ranks, and puts their messages into a queue.

    `say` takes lines for the log.
    """

    def __init__(
        self, folder: Path, count: int, events: asyncio.Queue[Any], say: Callable[[str], None]
    ) -> None:
        self._folder, self._count = folder, count
        self._events = events
        self._say = say
        self._start = 0
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start to listen in the results folder.

        Raises:
            LaunchError: it takes no socket.
        """
        try:
            listener = listen_for_ranks(self._folder)
        except OSError as error:
            raise LaunchError(
                f"{self._folder / SOCKET}: the socket of this node's ranks cannot be made "
                f"({error.strerror}): free some space there, make the folder writable, or set a "
                "workspace on a Linux file system in the inventory"
            ) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    def tell(self, order: Order) -> None:
        """Give an order to all connected ranks."""
        for writer in self._writers.values():
            writer.write(encode(order))

    def expect(self, start: int) -> None:
        """Wait for the ranks of this start; the connected ones are ended and no longer heard."""
        self._start = start
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.transport.abort()

    def close(self) -> None:
        """Stop to listen, and remove the socket."""
        self.expect(0)
        if self._server:
            self._server.close()
            (self._folder / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        local_rank, start = None, self._start
        try:
            here = decode(await reader.readline())
            if not isinstance(here, Here) or not 0 <= here.local_rank < self._count:
                raise ProtocolError(f"a rank of this node begins with Here, not {here}")
            local_rank = here.local_rank
            self._writers[local_rank] = writer
            self._events.put_nowait(Said(start, local_rank, here))
            while line := await reader.readline():
                message = decode(line)
                if not isinstance(message, News):
                    raise ProtocolError(f"a rank does not say {type(message).__name__}")
                if self._writers.get(local_rank) is not writer:
                    break
                self._events.put_nowait(Said(start, local_rank, message))
        except (ProtocolError, ValueError) as error:  # ValueError: a line without an end
            self._say(f"a rank of this node is no longer heard: {error}")
        except OSError:
            pass  # its end is told below
        finally:
            if local_rank is not None and self._writers.get(local_rank) is writer:
                del self._writers[local_rank]
                self._events.put_nowait(Left(start, local_rank))
            writer.transport.abort()


ASLEEP = 5.0
"""Seconds that this process hears nothing of its ranks, after which the machine or it has slept.

Less than any rank may stand still, however long the others may be silent.
"""


@dataclass(frozen=True)
class RanksExited:
    """The torchrun of this start of the ranks ended."""

    start: int
    status: int


@dataclass(frozen=True)
class NotStarted:
    """This start of the ranks did not even get to torchrun."""

    start: int
    message: str


class RanksKeeper(NodeSupervisor):
    """A supervisor whose ranks take orders; a subclass decides which.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.
    """

    def __init__(self, spec: Spec, unit: str | None, last: dict[str, Any] | None) -> None:
        super().__init__(spec, unit, last)
        self._offset = sum(spec.nprocs[: spec.rank])
        self._channel = Channel(spec.results, spec.nproc, self._events, self._say)
        self._hangs = HangWatch(spec.node, self._offset)
        self._open_step = OpenStep()
        self._leave: Leave | None = None
        self._over: dict[int, RankEnded] = {}
        self._gone_ranks: set[int] = set()
        self._evaluating: set[int] = set()
        self._formed_at: dict[int, int] = {}
        self._steps_done = 0
        self._start = 0
        self._starting = asyncio.Lock()
        self._ticked = boot_clock()
        self._kernel: asyncio.Task[None] | None = None

    @property
    def _ranks(self) -> LocalRanks:
        """The state of this node's ranks, as decisions know it."""
        raise NotImplementedError

    # Starting

    def _start_ranks(self, why: str) -> None:
        """Start this node's ranks, after ending those of an earlier start for the reason `why`."""
        if why:
            self._say(f"starting this node's ranks again: {why}")
        for task in self._of_launch:
            task.cancel()
        self._start += 1
        self._forget_ranks()
        self._of_launch = {self._spawn(self._run_ranks(self._start))}

    def _rest_ranks(self) -> None:
        """End this node's ranks, if any live, and have none until they are started again."""
        for task in self._of_launch:
            task.cancel()
        self._forget_ranks()
        self._of_launch = {self._spawn(self._end_ranks())}

    def _forget_ranks(self) -> None:
        """Take no more notice of the ranks that live."""
        self._start += 1
        self._leave, self._over, self._gone_ranks = None, {}, set()
        self._evaluating.clear()
        self._formed_at.clear()
        self._steps_done = 0
        self._hangs.clear()
        self._open_step.clear()
        self._channel.expect(self._start)

    async def _end_ranks(self) -> None:
        """End this node's torchrun and ranks, wherever they are."""
        async with self._starting:
            await self._workers.kill()
            await self._workers.stop(0)

    async def _end_former_ranks(self) -> None:
        """End what lives of an earlier start, once the kernel was asked about its end."""
        if self._kernel:  # asks a child process, which would be killed with the ranks
            await asyncio.wait((self._kernel,))
        await self._workers.kill()
        await self._workers.stop(0)

    async def _run_ranks(self, start: int) -> None:
        """Start the ranks, and put the end of torchrun into the queue."""
        spec = self._spec
        async with self._starting:
            if start > 1:
                await self._end_former_ranks()
            if (self._last or start > 1) and not await self._gpus_answer():
                return
            await self._bring_state()
            if (found := await self._own_port()) is None:
                return
            port, source = found
            generation = max(self._record.generation, spec.generation)
            clients = (spec.address, source)
            alone = Form(generation, (spec.node,), spec.address, port, clients, fresh=True)
            words = command(spec, alone)
            self._begin_launch(words)
            self._record.write(spec.record)
            self._say(f"this node is ready; starting torchrun (generation {generation})")
            variables = {CONTROL: "1", LAYOUT: layout_text(spec.layout)}
            try:
                await self._workers.start(words, alone, **variables)
            except OSError as error:
                message = f"cannot start {words[0]}: {error.strerror}"
                self._say(message)
                self._events.put_nowait(NotStarted(start, message))
                return
            self._watch_start()
        self._events.put_nowait(RanksExited(start, await self._workers.ended()))

    def _watch_start(self) -> None:
        """Watch the ranks of the torchrun that was just started."""
        for local_rank in range(self._spec.nproc):
            self._hangs.started(local_rank, boot_clock())

    async def _bring_state(self) -> None:
        """Bring what the ranks need of other nodes before they start."""

    async def _own_port(self) -> tuple[int, str] | None:
        """Return a free port at this node's address, and from where its programs connect to that.

        A network that was lost takes the address along: wait until it is back. After a timeout this
        node's part in the run ends, and None is returned.
        """
        address = self._spec.address

        async def find() -> tuple[int, str]:
            return free_port(address), source_towards(address)

        return await self._patiently(find, RETRY)

    # Orders

    def _tell_ranks(self, order: Order) -> None:
        """Give the ranks an order."""
        match order:
            case Leave():
                self._leave = order
            case Interrupt(generation, why):
                self._say(f"interrupting generation {generation}: {why}")
        if isinstance(order, LoadAlone | Form | Interrupt | Leave):
            for local_rank in range(self._spec.nproc):
                self._hangs.ordered(local_rank, order, boot_clock())
        self._channel.tell(order)

    # News

    async def _news_of_ranks(self, event: Said | Left | RanksExited | NotStarted) -> list[Event]:
        """Return the events of decisions in this one; none if it is of an earlier start."""
        if event.start != self._start:
            return []
        match event:
            case Said(_, local_rank, message):
                return self._hear_rank(local_rank, message)
            case Left(_, local_rank):
                self._gone_ranks.add(local_rank)
                self._hangs.left(local_rank, boot_clock())
                expected = self._leave or local_rank in self._over
                # Of ranks that live for one team torchrun tells how they ended.
                return [] if expected or not self._spec.resident else [RankLeft(local_rank)]
            case RanksExited(_, status):
                return await self._ranks_exited(status)
            case NotStarted(_, message):
                return self._ranks_failed(RanksFailure(None, message, local=True))

    def _hear_rank(self, local_rank: int, message: News) -> list[Event]:
        evaluated = bool(self._evaluating)
        news: list[Event] = []
        match message:
            case Here():
                if self._leave:
                    self._channel.tell(self._leave)
            case Doing():
                self._hangs.began(local_rank, message, boot_clock())
                if formed_at := self._formed_at.get(local_rank):
                    self._steps_done = max(self._steps_done, message.step - formed_at)
                self._open_step.began(local_rank, message, boot_clock())
                if message.what in EVALUATION:
                    self._evaluating.add(local_rank)
                elif message.what != FOR_OTHERS:
                    self._evaluating.discard(local_rank)
            case Disk(why):
                self._note_disk(why)
            case Alive():
                self._hangs.alive(local_rank, boot_clock())
            case RankEnded():
                self._hangs.rested(local_rank)
                self._over[local_rank] = message  # torchrun has yet to end
            case _:
                if isinstance(message, Formed):
                    self._hangs.formed(local_rank, boot_clock())
                    self._formed_at[local_rank], self._steps_done = message.step + 1, 0
                else:
                    self._hangs.rested(local_rank)
                self._evaluating.discard(local_rank)
                self._open_step.rested(local_rank)
                news.append(RankSaid(local_rank, message))
        if evaluated != bool(self._evaluating):
            news.append(Evaluates(not evaluated))
        return news

    def _note_disk(self, why: str) -> None:
        """Say that this node's disk takes no writes, or does again."""
        self._say(f"this node goes on without checkpoints: {why}" if why else "the disk has room")
        self._notices.disk(why)

    def _note_exit(self, status: int) -> list[Event]:
        """Record how torchrun ended; return what this tells."""
        self._record.exit_code = status
        self._say(f"torchrun ended with status {status}")
        return []

    def _ask_kernel(self) -> None:
        """Have what the kernel said of the ranks put into the log, beside all else."""
        self._kernel = self._spawn(self._say_kernel_messages())
        self._tasks.add(self._kernel)

    async def _ranks_exited(self, status: int) -> list[Event]:
        news = self._note_exit(status)
        if status == 0 and (self._leave or self._over):
            return news + self._ranks_over()
        if self._ranks.failure or self._terminated:
            return news
        # In a thread: while a long log is read, the other nodes must hear from this one.
        failed = self._ranks_failed(await asyncio.to_thread(self._failure, status))
        self._ask_kernel()
        return news + failed

    def _ranks_over(self) -> list[Event]:
        """Return that this node's ranks have ended by themselves."""
        self._hangs.clear()
        stopped = RankEnded("stopped", self._ranks.step)
        return [RankSaid(rank, self._over.get(rank, stopped)) for rank in range(self._spec.nproc)]

    def _failure(self, status: int) -> RanksFailure:
        """Return the error that ended this node's ranks."""
        if status == 0:
            return RanksFailure(None, "torchrun ended with status 0 before the training was over")
        found = self._log.failure(status, self._offset)
        again = RANK_AGAIN in (status, failed_status(self._log.text()))
        message = "its group broke before it trained" if again else found.message
        curable = again or found.curable or is_echo(found.message)
        return RanksFailure(found.rank, message, curable, found.local)

    def _steps_gained(self) -> int:
        """Return the steps that this node's ranks have done in their last group."""
        return self._steps_done

    def _ranks_failed(self, failure: RanksFailure) -> list[Event]:
        """Return that an error ended this node's ranks."""
        self._hangs.clear()
        return [RanksFailed(failure, self._steps_gained())]

    def _end_hanging_ranks(self) -> list[Event]:
        """Return that this node's ranks failed, if one hangs. Call it several times a second."""
        now = boot_clock()
        passed, self._ticked = now - self._ticked, now
        if passed > ASLEEP:
            self._hangs.slept(passed)
        if not (found := self._hangs.hanging(now)):
            return []
        rank, message = found
        self._say(f"{message}; killing this node's ranks")
        expected = self._leave or len(self._over) == self._spec.nproc
        if expected and len(self._gone_ranks) == self._spec.nproc:
            return self._ranks_over()  # They have done all that they had to.
        # Their new start ends them. The other nodes must not wait until the kernel lets go.
        return self._ranks_failed(RanksFailure(rank, message, curable=True))
