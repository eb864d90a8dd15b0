"""Requests to end: by the stop file, by a signal, or as another run goes first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.decisions.events import StopAsked
from hearth.supervisor.job import end_of_job
from hearth.supervisor.messages import Stop
from hearth.supervisor.queue import ahead_of, leave_queue, read_queue
from hearth.supervisor.unit import interruption

STOP, STOP_NOW, PAUSE = "stop\n", "now\n", "pause\n"
"""Contents of the stop file: end after the step; kill the ranks at once; end, then relaunch."""

POLL = 0.25
RETRY = 1.0


@dataclass(frozen=True)
class Interrupted:
    """This supervisor has to end, without a request to stop the run; `why` is the reason.

    It `yields` if it is to go back to the queue, and to let another run go first.
    """

    why: str
    yields: bool = False


class StopRequests:
    """Puts each request into the queue of events, and keeps what has become of them.

    Attributes:
        stopping: whether the run is to stop.
        terminated: whether the ranks were told to end by SIGTERM; their status says nothing then.
        yields: whether this node goes back to the queue.
    """

    def __init__(self, context: SupervisorContext) -> None:
        self._context = context
        self._file = context.spec.stop_file
        self.stopping = self.terminated = self.yields = False
        self._signalled = self._interrupted = False

    def listen(self) -> None:
        """Take signals from now on."""
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(sign, self._on_signal)

    async def watch_file(self) -> None:
        """Turn the stop file into events: one when it appears and one when it says `now`."""
        handled: set[str] = set()
        while STOP_NOW not in handled:
            await asyncio.sleep(POLL)
            asked = self.in_file()
            if asked in (STOP, STOP_NOW) and asked not in handled:
                self._ask(asked == STOP_NOW)
                handled.add(asked)

    async def watch_queue(self, has_begun: Callable[[], bool]) -> None:
        """Leave the queue once the run has begun here; before, let a run go first that was moved.

        Two runs that each had a part of their nodes would otherwise wait for each other.
        """
        spec, asked = self._context.spec, False
        while not has_begun():
            entries = read_queue(spec.workspace)
            own = next((each for each in entries if each.run == spec.run), None)
            ahead = ahead_of(own, entries, datetime.now(UTC)) if own else []
            if ahead and not asked:
                asked = True
                first = Interrupted(f"{ahead[0]} comes first", yields=True)
                self._context.events.put_nowait(first)
            await asyncio.sleep(RETRY)
        leave_queue(spec.workspace, spec.run)

    def heeds(self, asked: Interrupted, begun: bool) -> bool:
        """Return whether this supervisor is to end as `asked`.

        The run may have `begun` since it was asked to let another one go first: the other nodes
        train by now, and would wait for this one.
        """
        if asked.yields and (self._interrupted or begun):
            return False
        self.yields = asked.yields
        return True

    async def stop_after_grace(self) -> None:
        """Stop the run at once when the ranks had time to end after their step."""
        await asyncio.sleep(self._context.spec.stop_grace)
        self._ask(now=True)

    def unheard(self) -> StopAsked | None:
        """Return the stop that a trainer has seen in the file before this supervisor did."""
        if self.stopping or self.in_file() != STOP:
            return None
        self.stopping = True
        return StopAsked(Stop(self._context.spec.node))

    def stop_ranks(self, now: bool) -> None:
        """Note that the run stops; unless at once, have this node's trainer end after its step."""
        self.stopping = True
        if not now:  # each trainer polls only its own node's file, whichever node was asked
            with suppress(OSError):
                self._file.write_text(STOP)

    # The stop file

    def in_file(self) -> str | None:
        """Return the request in the stop file; an empty file, created by hand, requests a stop."""
        try:
            return self._file.read_text() or STOP
        except OSError:
            return None

    def write_pause(self) -> None:
        """Have it pause after its step, unless a user has just requested a stop."""
        with suppress(OSError), self._file.open("x") as file:
            file.write(PAUSE)

    def forget_pause(self) -> None:
        """Remove a stop file that only paused the previous launch; the ranks would stop at it."""
        if self.in_file() == PAUSE:
            self.forget()

    def forget(self) -> None:
        """Remove the stop file."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)

    # Signals

    def _ask(self, now: bool, why: str = "") -> None:
        """Have the run stop, as asked on this node; `why` is Slurm's reason."""
        self._context.events.put_nowait(StopAsked(Stop(self._context.spec.node, now, why)))

    def _on_signal(self) -> None:
        """Stop after the step; at once after the grace period, or at a second signal.

        Without a request for it, leave the run open so that it resumes.
        """
        context = self._context
        if context.record.job:
            self._on_end_of_job(context.record.job)
            return
        waited_for = context.spec.return_timeout and not self._signalled
        if waited_for and (why := interruption(context.record.unit)):
            self._interrupted, self.yields = True, False
            context.events.put_nowait(Interrupted(why))
            return
        self._ask(self._signalled)
        if not self._signalled:
            context.beside(self.stop_after_grace())
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
            self._context.events.put_nowait(Interrupted(why))
        else:
            self.terminated = True
            self._ask(True, why)
