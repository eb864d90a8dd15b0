"""The common life of a node's supervisor: lock, signals, stop file, record, log and outcome.

A subclass takes part in the run with the other nodes. All events arrive in one queue and are
handled one at a time.
"""

from __future__ import annotations

import asyncio
import signal
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from hearth.base.errors import HearthError, LaunchError
from hearth.base.json_lines import read_as
from hearth.base.nvidia import gpus
from hearth.notify.event import READY, RETURN, Limit
from hearth.supervisor.afterwards import do_afterwards
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.decisions.events import StopAsked
from hearth.supervisor.job import end_of_job, own_job
from hearth.supervisor.log import LaunchLog, say
from hearth.supervisor.messages import Stop
from hearth.supervisor.notices import Notices
from hearth.supervisor.queue import ahead_of, leave_queue, read_queue
from hearth.supervisor.record import EndedLaunch, RunRecord
from hearth.supervisor.spec import Spec, lock_file
from hearth.supervisor.unit import interruption
from hearth.supervisor.workers import Workers, end, leftovers

KILL_GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL after the launch has ended."""

T = TypeVar("T")

POLL = 0.25
RETRY = 1.0
GPU_RETRY = 5.0
"""Seconds between two questions for a GPU that is gone; a driver may load late in a boot."""

STOP, STOP_NOW, PAUSE = "stop\n", "now\n", "pause\n"
"""Contents of the stop file: end after the step; kill the ranks at once; end, then relaunch."""


@dataclass(frozen=True)
class Interrupted:
    """This supervisor has to end, without a request to stop the run; `why` is the reason.

    It `yields` if it is to go back to the queue, and to let another run go first.
    """

    why: str
    yields: bool = False


class NodeSupervisor:
    """A supervisor of one node, from its lock to the recorded outcome of the run.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.
    """

    def __init__(self, spec: Spec, unit: str | None, last: dict[str, Any] | None) -> None:
        self._spec = spec
        self._last = last
        kept = ("generation", "began")  # its steps are counted from the beginning, too
        facts = {name: last[name] for name in kept if name in last} if last else {}
        self._record = RunRecord.from_spec(spec, unit=unit, job=own_job(spec), **facts)
        if last:
            self._record.launches = read_as(list[EndedLaunch], last["launches"])
            self._record.launch_ended(self._went_down(last))
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._notices = Notices(spec, self._record, self._say)
        self._apart = False
        self._workers = Workers(spec)
        self._stopping = False
        self._signalled = False
        self._yields = False
        self._interrupted = False
        self._terminated = False
        self._log = LaunchLog(spec)
        self._tasks: set[asyncio.Task[None]] = set()
        self._of_launch: set[asyncio.Task[None]] = set()

    # The subclass's part

    async def _open(self) -> None:
        """Start listening, and log this node's part in the run.

        Raises:
            LaunchError: the port is taken.
        """
        raise NotImplementedError

    async def _take_part(self) -> LaunchOutcome | Interrupted:
        """Take part in the run to its end, or until this supervisor is interrupted."""
        raise NotImplementedError

    async def _disconnect(self) -> None:
        """Close the connections to the others, with the outcome recorded."""
        raise NotImplementedError

    def _absent(self) -> set[str]:
        """Return the nodes of the run that are not there now, as far as this one knows."""
        raise NotImplementedError

    def _in_queue(self) -> set[str]:
        """Return the nodes that keep the run waiting for its turn now."""
        raise NotImplementedError

    def _ends_afterwards(self, event: Any) -> str:
        """Return why `event` ends what follows the training, "" if it does not."""
        match event:
            case StopAsked(stop):
                return stop.why or "asked to stop"
            case Interrupted(why):
                return why
        return ""

    # Common to all

    def _wanted_elsewhere(self) -> str:
        """Return why what follows the training is to end now, "" if it may go on."""
        while not self._events.empty():
            if why := self._ends_afterwards(self._events.get_nowait()):
                return why
        return ""

    async def _listen_at(self, listen: Callable[[], Awaitable[None]]) -> None:
        """Call `listen`; long after the launch, wait if another program took the port meanwhile.

        Raises:
            LaunchError: the port is taken.
        """
        later = self._last or self._spec.queue
        until = time.monotonic() + (self._spec.patience if later else 0)
        while True:
            try:
                return await listen()
            except LaunchError:
                if time.monotonic() >= until:
                    raise
            await asyncio.sleep(RETRY)

    def _went_down(self, last: dict[str, Any]) -> Cause:
        job = self._record.job
        what = f"Slurm restarted job {job}" if job else f"{self._spec.node} went down"
        message = f"{what} (its last sign of life: {last['heartbeat']})"
        return Cause(self._spec.node, None, "node_lost", message)

    @property
    def _patience(self) -> float:
        """Timeout in seconds for the other nodes: longer once the run has started."""
        spec = self._spec
        return spec.patience if self._record.launches else spec.first_timeout

    def _limit(self) -> Limit:
        """Return the timeout for the other nodes with the setting that it has."""
        ready = self._patience == self._spec.ready_timeout
        return Limit(self._patience, READY if ready else RETURN)

    def send_end(self) -> None:
        """Send the message on the end of the run, if it is this node's to send; see `Notices`."""
        self._notices.send_end()

    async def run(self) -> RunRecord:
        """Supervise, and return the record of the run."""
        spec = self._spec
        if self._last:  # A stop request from before it went down remains valid.
            self._forget_pause()
        elif not spec.queue:  # else it has been heeded since the launch
            spec.stop_file.unlink(missing_ok=True)
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(sign, self._on_signal)
        await self._end_leftovers()
        try:
            await self._open()
            self._record.write(spec.record)
            for source in (self._watch_stop_file(), self._beat()):
                self._tasks.add(self._spawn(source))
            if spec.queue and not self._last:
                self._tasks.add(self._spawn(self._watch_queue()))
            verdict = await self._take_part()
        except HearthError as error:
            cause = Cause(spec.node, None, "not_ready", "\n".join(error.findings))
            verdict = LaunchOutcome("failed", cause)
        except Exception as error:
            verdict = self._bug(error)
        if isinstance(verdict, Interrupted):
            await self._leave_for_now(verdict.why)
            return self._record
        if self._last:
            verdict = _as_lost(verdict, spec.node, self._last["heartbeat"])
        await self._conclude(verdict)
        return self._record

    async def _leave_for_now(self, why: str) -> None:
        """End the ranks but not the run: its record stays open, so that it resumes."""
        then = "back to the queue" if self._yields else "the run goes on when NODE is back"
        self._say(f"{why}; {then.replace('NODE', self._spec.node)}")
        await self._workers.stop(KILL_GRACE)
        for task in self._tasks | self._of_launch:
            task.cancel()
        await self._disconnect()
        if self._yields:
            self._record.missing, self._record.away = [], ""
            self._record.enter("queued")

    async def _conclude(self, verdict: LaunchOutcome) -> None:
        """End remaining processes and record the outcome."""
        absent = self._absent()
        others = len(absent) < len(self._spec.nodes) - 1 and not self._stopping
        self._notices.conclude(verdict, absent, self._apart and others)
        status = await self._workers.stop(KILL_GRACE)
        if status is not None and self._record.exit_code is None:
            self._record.exit_code = status
        if verdict.state == "finished" and not self._stopping:
            await do_afterwards(self._spec, absent, self._wanted_elsewhere, self._say)
        for task in self._tasks | self._of_launch:
            task.cancel()
        with suppress(OSError):
            self._spec.stop_file.unlink(missing_ok=True)
        cause = verdict.cause
        self._record.cause = cause
        self._record.away = ""
        if cause is None or cause.kind != "not_ready":
            self._record.missing = []
        self._record.enter(verdict.state)
        self._record.write(self._spec.record)
        self._say(f"{verdict.state}" + (f": {cause.node}: {cause.message}" if cause else ""))
        await self._disconnect()

    def _begin_launch(self, words: list[str]) -> None:
        """Note that torchrun is about to be started by `words`, and where its log begins."""
        self._record.command = words
        self._log.begin()

    async def _say_kernel_messages(self) -> None:
        """Log the kernel's messages since the launch began."""
        for line in await self._log.kernel():
            self._say(f"kernel: {line}")

    async def _gpus_answer(self) -> bool:
        """Wait until the driver lists as many GPUs as at the start; return whether it does.

        A restart or a fault may have lost one, and the ranks would go on with the processor.
        """
        most = self._spec.gpus

        async def count() -> bool:
            if most and (there := len(await asyncio.to_thread(gpus))) < most:
                raise LaunchError(
                    f"nvidia-smi lists {there} of the {most} GPUs that the run began with here; "
                    f"`hearth doctor` says why"
                )
            return True

        return bool(await self._patiently(count, GPU_RETRY))

    async def _patiently(self, attempt: Callable[[], Awaitable[T]], pause: float) -> T | None:
        """Call `attempt` until it raises no more, with `pause` in between; return its result.

        After the timeout for other nodes this node's part in the run ends, and None is returned.
        """
        until, known = time.monotonic() + self._patience, False
        while True:
            try:
                return await attempt()
            except (LaunchError, OSError) as error:
                if time.monotonic() >= until:
                    cause = Cause(self._spec.node, None, "not_ready", str(error))
                    self._events.put_nowait(LaunchOutcome("failed", cause))
                    return None
                if not known:
                    self._say(f"this node's ranks cannot start yet: {error}; waiting")
                    known = True
            await asyncio.sleep(pause)

    def _forget_pause(self) -> None:
        """Remove a stop file that only paused the previous launch; the ranks would stop at it."""
        with suppress(OSError):
            if self._spec.stop_file.read_text() == PAUSE:
                self._spec.stop_file.unlink()

    async def _watch_stop_file(self) -> None:
        """Turn the stop file into events: one when it appears and one when it says `now`."""
        handled: set[str] = set()
        while STOP_NOW not in handled:
            await asyncio.sleep(POLL)
            asked = self._requested_stop()
            if asked in (STOP, STOP_NOW) and asked not in handled:
                self._events.put_nowait(self._stop_asked(asked == STOP_NOW))
                handled.add(asked)

    def _stop_asked(self, now: bool, why: str = "") -> StopAsked:
        """Return the event of a stop that was asked for on this node; `why` is Slurm's reason."""
        return StopAsked(Stop(self._spec.node, now, why))

    def _requested_stop(self) -> str | None:
        """Return the request in the stop file; an empty file, created by hand, requests a stop."""
        try:
            return self._spec.stop_file.read_text() or STOP
        except OSError:
            return None

    def _has_begun(self) -> bool:
        """Return whether this node's ranks train, have trained, or are about to."""
        return self._record.state != "waiting" or bool(self._record.launches)

    async def _watch_queue(self) -> None:
        """Leave the queue once the run has begun here; before, let a run go first that was moved.

        Two runs that each had a part of their nodes would otherwise wait for each other.
        """
        spec = self._spec
        asked = False
        while not self._has_begun():
            entries = read_queue(spec.workspace)
            own = next((each for each in entries if each.run == spec.run), None)
            ahead = ahead_of(own, entries, datetime.now(UTC)) if own else []
            if ahead and not asked:
                asked = True
                self._events.put_nowait(Interrupted(f"{ahead[0]} comes first", yields=True))
            await asyncio.sleep(RETRY)
        leave_queue(spec.workspace, spec.run)

    def _heeds(self, asked: Interrupted) -> bool:
        """Return whether this supervisor is to end as `asked`.

        The run may have begun since it was asked to let another one go first: the other nodes train
        by now, and would wait for this one.
        """
        if asked.yields and (self._interrupted or self._has_begun()):
            return False
        self._yields = asked.yields
        return True

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._spec.heartbeat)
            self._record.write(self._spec.record)
            self._notices.observe(self._absent(), self._limit(), self._in_queue())

    def _on_signal(self) -> None:
        """Stop after the step; at once after the grace period, or at a second signal.

        Without a request for it, leave the run open so that it resumes.
        """
        if self._record.job:
            self._on_end_of_job(self._record.job)
            return
        waited_for = self._spec.return_timeout and not self._signalled
        if waited_for and (why := interruption(self._record.unit)):
            self._interrupted, self._yields = True, False
            self._events.put_nowait(Interrupted(why))
            return
        self._events.put_nowait(self._stop_asked(self._signalled))
        if not self._signalled:
            self._tasks.add(self._spawn(self._stop_after_grace()))
        self._signalled = True

    def _on_end_of_job(self, job: str) -> None:
        """Leave the run open if Slurm starts its job again, else end it at once.

        Slurm has sent the signal to the ranks, too: none of them ends its step.
        """
        if self._signalled:
            return
        self._signalled = True
        again, why = end_of_job(job)
        if again:
            self._events.put_nowait(Interrupted(why))
        else:
            self._terminated = True
            self._events.put_nowait(self._stop_asked(True, why))

    async def _stop_after_grace(self) -> None:
        await asyncio.sleep(self._spec.stop_grace)
        self._events.put_nowait(self._stop_asked(True))

    async def _end_leftovers(self) -> None:
        """End the processes that a killed supervisor left behind in this workspace."""
        left = leftovers(self._spec.workspace)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            self._say(f"ending what an earlier run left behind: process {pids}")
            await end(left)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task beside the queue; an exception in it ends the run."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self._events.put_nowait(self._bug(error))

        return asyncio.create_task(guarded())

    def _bug(self, error: Exception) -> LaunchOutcome:
        self._say("".join(traceback.format_exception(error)).rstrip())
        message = f"the supervisor of {self._spec.node} has a bug: {error!r}"
        return LaunchOutcome("failed", Cause(self._spec.node, None, "node_lost", message))

    def _say(self, words: str) -> None:
        say(self._spec, words)


def make_folders(spec: Spec) -> None:
    """Make the run's folders on this node. Raises `LaunchError` if that cannot be done."""
    folders = [spec.results, spec.log.parent, lock_file(spec.workspace).parent]
    for folder in [*folders, spec.files] if spec.scripted else folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LaunchError(
                f"{spec.node}: {folder} cannot be made: {error.strerror}; make it writable or "
                "set another workspace in the inventory"
            ) from error


def _as_lost(verdict: LaunchOutcome, node: str, last_sign: str) -> LaunchOutcome:
    """Return `verdict` for a node that was down: if the others gave up, its loss is the cause."""
    if verdict.cause is None or verdict.cause.kind != "not_ready":
        return verdict
    message = (
        f"{node} went down in the middle of the run (its last sign of life: {last_sign}), which "
        f"the others have ended; back again, {verdict.cause.message}"
    )
    return replace(verdict, cause=Cause(node, None, "node_lost", message))
