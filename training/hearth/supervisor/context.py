"""The common ground of a supervisor's parts: spec, record, queue of events, log, tasks."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from typing import Any

from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.log import say
from hearth.supervisor.record import RunRecord
from hearth.supervisor.spec import Spec


class SupervisorContext:
    """The spec, the record, the events and the log that all parts of a supervisor share.

    Attributes:
        spec: of the run on this node.
        record: of the run on this node.
        events: all events of the node, which are handled one at a time.
    """

    def __init__(self, spec: Spec, record: RunRecord) -> None:
        self.spec, self.record = spec, record
        self.events: asyncio.Queue[Any] = asyncio.Queue()
        self._beside: set[asyncio.Task[None]] = set()

    @property
    def patience(self) -> float:
        """Timeout in seconds for the other nodes: longer once the run has started."""
        return self.spec.patience if self.record.launches else self.spec.first_timeout

    def say(self, words: str) -> None:
        """Add a line to the run's log."""
        say(self.spec, words)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task beside the queue; an exception in it ends the run."""

        async def guarded() -> None:
            try:
                await work
            except Exception as error:
                self.events.put_nowait(self.bug(error))

        return asyncio.create_task(guarded())

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` as a task until the supervisor ends."""
        self._beside.add(self.spawn(work))

    def end_tasks(self) -> None:
        """Cancel the tasks that run beside."""
        for task in self._beside:
            task.cancel()

    def bug(self, error: Exception) -> LaunchOutcome:
        """Log an error of the supervisor itself; return the end of the run by it."""
        self.say("".join(traceback.format_exception(error)).rstrip())
        message = f"the supervisor of {self.spec.node} has a bug: {error!r}"
        return LaunchOutcome("failed", Cause(self.spec.node, None, "node_lost", message))
