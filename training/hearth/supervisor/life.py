"""The life of a node's supervisor, from the lock to the recorded outcome of the run."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hearth.base.errors import HearthError, LaunchError
from hearth.base.json_lines import read_as
from hearth.supervisor.afterwards import do_afterwards
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.job import own_job
from hearth.supervisor.launches import RankLaunches
from hearth.supervisor.member import Member
from hearth.supervisor.notices import Notices
from hearth.supervisor.record import EndedLaunch, RunRecord
from hearth.supervisor.requests import Interrupted, StopRequests
from hearth.supervisor.spec import Spec, lock_file
from hearth.supervisor.workers import KILL_GRACE, end, leftovers


class NodeSupervisor:
    """A supervisor of one node.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.
    """

    def __init__(self, spec: Spec, unit: str | None, last: dict[str, Any] | None) -> None:
        self._spec, self._last = spec, last
        self._record = _record_of(spec, unit, last)
        self._context = SupervisorContext(spec, self._record)
        self.notices = Notices(spec, self._record, self._context.say)
        self._requests = StopRequests(self._context)
        self._launches = RankLaunches(self._context, returning=last is not None)
        self._member = Member(
            self._context, self._requests, self._launches, self.notices.disk, last
        )

    async def run(self) -> RunRecord:
        """Supervise, and return the record of the run."""
        spec, context, requests = self._spec, self._context, self._requests
        if self._last:  # A stop request from before it went down remains valid.
            requests.forget_pause()
        elif not spec.queue:  # else it has been heeded since the launch
            requests.forget()
        requests.listen()
        await self._end_leftovers()
        verdict: LaunchOutcome | Interrupted
        try:
            await self._member.open()
            self._record.write(spec.record)
            context.beside(requests.watch_file())
            context.beside(self._beat())
            if spec.queue and not self._last:
                context.beside(requests.watch_queue(self._member.has_begun))
            verdict = await self._member.take_part()
        except HearthError as error:
            cause = Cause(spec.node, None, "not_ready", "\n".join(error.findings))
            verdict = LaunchOutcome("failed", cause)
        except Exception as error:
            verdict = context.bug(error)
        if isinstance(verdict, Interrupted):
            await self._leave_for_now(verdict.why)
            return self._record
        if self._last:
            verdict = _as_lost(verdict, spec.node, self._last["heartbeat"])
        await self._conclude(verdict)
        return self._record

    async def _leave_for_now(self, why: str) -> None:
        """End the ranks but not the run: its record stays open, so that it resumes."""
        yields = self._requests.yields
        then = "back to the queue" if yields else f"the run goes on when {self._spec.node} is back"
        self._context.say(f"{why}; {then}")
        await self._launches.workers.stop(KILL_GRACE)
        self._context.end_tasks()
        await self._member.close()
        if yields:
            self._record.missing, self._record.away = [], ""
            self._record.enter("queued")

    async def _conclude(self, verdict: LaunchOutcome) -> None:
        """End remaining processes and record the outcome."""
        absent, record, stopping = self._member.absent, self._record, self._requests.stopping
        others = len(absent) < len(self._spec.nodes) - 1 and not stopping
        self.notices.conclude(verdict, absent, self._member.apart and others)
        status = await self._launches.workers.stop(KILL_GRACE)
        if status is not None and record.exit_code is None:
            record.exit_code = status
        if verdict.state == "finished" and not stopping:
            wanted = self._member.wanted_elsewhere
            await do_afterwards(self._spec, absent, wanted, self._context.say)
        self._context.end_tasks()
        self._requests.forget()
        cause = verdict.cause
        record.cause, record.away = cause, ""
        if cause is None or cause.kind != "not_ready":
            record.missing = []
        record.enter(verdict.state)
        record.write(self._spec.record)
        self._context.say(verdict.state + (f": {cause.node}: {cause.message}" if cause else ""))
        await self._member.close()

    async def _beat(self) -> None:
        """Keep the record fresh, and send a person the messages that are due."""
        while True:
            await asyncio.sleep(self._spec.heartbeat)
            self._record.write(self._spec.record)
            member = self._member
            self.notices.observe(member.absent, member.limit, member.in_queue)

    async def _end_leftovers(self) -> None:
        """End the processes that a killed supervisor left behind in this workspace."""
        left = leftovers(self._spec.workspace)
        if left:
            pids = ", ".join(str(process.pid) for process in left)
            self._context.say(f"ending what an earlier run left behind: process {pids}")
            await end(left)


def _record_of(spec: Spec, unit: str | None, last: dict[str, Any] | None) -> RunRecord:
    """Return the record that a supervisor begins with, or goes on with."""
    kept = ("generation", "began")  # its steps are counted from the beginning, too
    facts = {name: last[name] for name in kept if name in last} if last else {}
    record = RunRecord.from_spec(spec, unit=unit, job=own_job(spec), **facts)
    if last:
        record.launches = read_as(list[EndedLaunch], last["launches"])
        what = f"Slurm restarted job {record.job}" if record.job else f"{spec.node} went down"
        message = f"{what} (its last sign of life: {last['heartbeat']})"
        record.launch_ended(Cause(spec.node, None, "node_lost", message))
    return record


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
