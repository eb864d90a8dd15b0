"""The launches of torchrun on a node, one after the other, and how each ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from hearth.base.clock import boot_clock
from hearth.base.errors import LaunchError
from hearth.base.nvidia import gpus
from hearth.ranks.control_protocol import Form
from hearth.supervisor.cause import Cause, LaunchOutcome, RanksFailure
from hearth.supervisor.channel import Channel
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.log import LaunchLog
from hearth.supervisor.ranks_watch import RanksWatch
from hearth.supervisor.workers import Workers, command

GPU_RETRY = 5.0
"""Seconds between two questions for a GPU that is gone; a driver may load late in a boot."""

T = TypeVar("T")


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


class RankLaunches:
    """Starts and ends this node's torchrun. `returning`: the supervisor itself came back.

    Attributes:
        start: number of the present start; events of earlier ones are out of date.
        changing: held while torchrun is started or ended.
        workers, log, channel, watch: of the ranks of the present start.
    """

    def __init__(self, context: SupervisorContext, returning: bool) -> None:
        spec = context.spec
        self._context, self._returning = context, returning
        self.start = 0
        self.changing = asyncio.Lock()
        self.workers = Workers(spec)
        self.log = LaunchLog(spec)
        self.channel = Channel(spec.results, spec.nproc, context.events, context.say)
        self.watch = RanksWatch(spec.node, sum(spec.nprocs[: spec.rank]), spec.nproc)
        self._tasks: set[asyncio.Task[None]] = set()
        self._kernel: asyncio.Task[None] | None = None

    def begin(self, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        """Give up the present start, and do `work` with the number of a new one."""
        self.cancel()
        self.start += 1
        self.watch.clear()
        self.channel.expect(self.start)
        self.add(work(self.start))

    def add(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` as a part of the present start."""
        self._tasks.add(self._context.spawn(work))

    def cancel(self) -> None:
        """Cancel the work of the present start."""
        for task in self._tasks:
            task.cancel()
        self._tasks = set()

    async def clear(self) -> None:
        """End this node's torchrun and ranks, wherever they are; `changing` is held."""
        if self._kernel:  # asks a child process, which would be killed with the ranks
            await asyncio.wait((self._kernel,))
        await self.workers.kill()
        await self.workers.stop(0)

    async def make_ready(self, start: int) -> bool:
        """End what lives of an earlier start; return whether the node's GPUs are there."""
        if start > 1:
            await self.clear()
        return not (self._returning or start > 1) or await self._gpus_answer()

    async def run(self, start: int, group: Form, **variables: str) -> bool:
        """Start torchrun for a group, with `variables` beside; return whether it could be."""
        words = command(self._context.spec, group)
        self._context.record.command = words
        self.log.begin()
        try:
            await self.workers.start(words, group, **variables)
        except OSError as error:
            message = f"cannot start {words[0]}: {error.strerror}"
            self._context.say(message)
            self._context.events.put_nowait(NotStarted(start, message))
            return False
        self.watch.started(boot_clock())
        return True

    async def until_exit(self, start: int) -> None:
        """Wait for torchrun's end, and put it into the queue."""
        self._context.events.put_nowait(RanksExited(start, await self.workers.ended()))

    async def failure(self, status: int, first_rank: int | None) -> RanksFailure:
        """Return why torchrun failed, as `LaunchLog.failure`."""
        # In a thread: while a long log is read, the other nodes must hear from this one.
        return await asyncio.to_thread(self.log.failure, status, first_rank)

    def ask_kernel(self) -> None:
        """Have what the kernel said of the ranks put into the log, beside all else."""
        self._kernel = self._context.spawn(self._say_kernel_messages())

    async def _say_kernel_messages(self) -> None:
        """Log the kernel's messages since the launch began."""
        for line in await self.log.kernel():
            self._context.say(f"kernel: {line}")

    async def _gpus_answer(self) -> bool:
        """Wait until the driver lists as many GPUs as at the start; return whether it does.

        A restart or a fault may have lost one, and the ranks would go on with the processor.
        """
        most = self._context.spec.gpus

        async def count() -> bool:
            if most and (there := len(await asyncio.to_thread(gpus))) < most:
                raise LaunchError(
                    f"nvidia-smi lists {there} of the {most} GPUs that the run began with here; "
                    f"`hearth doctor` says why"
                )
            return True

        return bool(await self.patiently(count, GPU_RETRY))

    async def patiently(self, attempt: Callable[[], Awaitable[T]], pause: float) -> T | None:
        """Call `attempt` until it raises no more, with `pause` in between; return its result.

        After the timeout for other nodes this node's part in the run ends, and None is returned.
        """
        context = self._context
        until, known = monotonic() + context.patience, False
        while True:
            try:
                return await attempt()
            except (LaunchError, OSError) as error:
                if monotonic() >= until:
                    cause = Cause(context.spec.node, None, "not_ready", str(error))
                    context.events.put_nowait(LaunchOutcome("failed", cause))
                    return None
                if not known:
                    context.say(f"this node's ranks cannot start yet: {error}; waiting")
                    known = True
            await asyncio.sleep(pause)
