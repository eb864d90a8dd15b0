"""The supervision of one node's part in a run: its wait in the queue, if any, then its training.

The supervisor starts with the launch and runs by itself after that. While it waits it does not hold
the node's lock, heeds a stop, and reports to the run's other supervisors that this node is queued.
"""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from hearth.base.clock import local_time
from hearth.base.errors import LaunchError
from hearth.supervisor.cause import ENDS, Cause, LaunchOutcome
from hearth.supervisor.decisions.events import Joined, PeerSaid
from hearth.supervisor.decisions.voting import Votes
from hearth.supervisor.life import NodeSupervisor, make_folders
from hearth.supervisor.log import say
from hearth.supervisor.mesh import Mesh
from hearth.supervisor.messages import NodeReport, Stop
from hearth.supervisor.preflight import ready
from hearth.supervisor.queue import (
    ahead_of,
    coming_back,
    enter_queue,
    entry_from,
    in_queue,
    leave_queue,
    mark_begun,
    read_queue,
    removal,
    why_not_yet,
)
from hearth.supervisor.record import NodeTaken, RunRecord, close_record, lock_holder, node_lock
from hearth.supervisor.spec import Spec
from hearth.supervisor.unit import interruption

POLL = 0.5
BOOT = 60.0
"""Seconds after which a run whose supervisor is not up is told: in a boot it comes back sooner."""


def run_in_turn(spec: Spec, unit: str | None, fresh: bool) -> RunRecord:
    """Wait for the turn of the run on this node, then supervise it; return its record.

    The record is open if this supervisor was interrupted. `unit` is the systemd unit of this
    process, if any; `fresh` tells that the run has just been launched.

    Raises:
        LaunchError: its folders cannot be written, or this machine has lost the run's address.
    """
    make_folders(spec)
    if fresh:
        spec.stop_file.unlink(missing_ok=True)
    record = RunRecord.from_spec(spec, unit=unit, state="queued")
    with in_queue(spec.workspace, spec.run):
        enter_queue(spec)
        while True:
            try:
                ready_spec = asyncio.run(_Waiter(spec, record).wait())
                if ready_spec is None:
                    break
                record = supervise(ready_spec, unit)
            except NodeTaken:
                continue  # by a run that was started without the queue
            except LaunchError as error:
                close_record(spec, dataclasses.asdict(record), " ".join(error.findings))
                leave_queue(spec.workspace, spec.run)
                raise
            if record.state != "queued":
                break
        if record.state in ENDS:
            leave_queue(spec.workspace, spec.run)
    return record


def supervise(spec: Spec, unit: str | None = None, last: dict[str, Any] | None = None) -> RunRecord:
    """Run this node's part of a run, with resident or relaunched ranks; return its last record.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.

    Raises:
        NodeTaken: another run has the node.
        LaunchError: its folders cannot be written.
    """
    make_folders(spec)
    with node_lock(spec.workspace, spec.run):
        supervisor = NodeSupervisor(spec, unit, last)
        record = asyncio.run(supervisor.run())
    if record.state in ENDS:  # a machine that goes down waits for no message
        leave_queue(spec.workspace, spec.run)  # nor does the run behind this one
        supervisor.notices.send_end()
    return record


class _Waiter:
    """The supervisor of a node while its run waits; `record` is that of the run."""

    def __init__(self, spec: Spec, record: RunRecord) -> None:
        self._spec, self._record = spec, record
        self._signalled = False
        self._written = 0.0
        self._down: dict[str, float] = {}
        self._lacks_since: float | None = None
        self._why = ""
        self._report = NodeReport(spec.node, "queued", Votes())
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._mesh = Mesh(
            spec, self._events, partial(say, spec), asyncio.create_task, lambda: False
        )
        self._met = False

    async def wait(self) -> Spec | None:
        """Return the spec, ready to be supervised, when the turn has come.

        None: the run has ended, or this supervisor is interrupted. Raises `LaunchError` if the
        turn has come and this machine has not the run's address for as long as others would wait.
        """
        loop = asyncio.get_running_loop()
        for sign in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(sign, self._on_signal)
        try:
            while True:
                asked = self._spec.stop_file.exists()
                if outcome := self._stopped(self._spec.node) if asked else self._hear():
                    self._end(outcome)
                    return None
                if self._signalled:
                    if why := await asyncio.to_thread(interruption, self._record.unit):
                        say(self._spec, f"{why}; the run keeps its place in the queue")
                    else:
                        self._end(self._stopped(self._spec.node))
                    return None
                if turn := self._turn():
                    say(self._spec, f"it is this run's turn on {self._spec.node}")
                    return turn
                await self._meet()
                await asyncio.sleep(POLL)
        finally:
            await self._mesh.close()

    def _on_signal(self) -> None:
        self._signalled = True

    def _turn(self) -> Spec | None:
        """Return the spec, ready to be supervised, if the turn has come; else record why not."""
        if why := self._why_not_yet():
            self._lacks_since = None
            self._write(why)
            return None
        try:
            return ready(self._spec)
        except LaunchError as error:  # in a boot the address may come late
            self._lacks_since = self._lacks_since or time.monotonic()
            if time.monotonic() - self._lacks_since > self._spec.patience:
                raise
            self._write(" ".join(error.findings))
            return None

    def _why_not_yet(self) -> str:
        spec = self._spec
        entries = read_queue(spec.workspace)
        own = next((entry for entry in entries if entry.run == spec.run), None)
        own = own or entry_from(spec.run, spec.queue)
        assert own  # the spec was checked
        now = local_time()
        holder = (lock_holder(spec.workspace) or {}).get("run", "")
        back = "" if holder else coming_back(spec.workspace)
        ahead = ahead_of(own, entries, now)
        down = {each.run for each in entries if each.run in ahead and not each.up} - {holder}
        self._note_down(down | ({back} if back else set()))
        holder = holder or back
        if holder == "?":  # it has just come, or is about to go
            return self._record.cause.message if self._record.cause else "waits for this node"
        return why_not_yet(own, entries, holder, now)

    def _note_down(self, runs: set[str]) -> None:
        """Note the runs before this one whose supervisors are not up, and since when."""
        self._down = {run: self._down.get(run, time.monotonic()) for run in sorted(runs)}

    def _write(self, why: str) -> None:
        """Keep the record of a run that waits, and log why when that changes."""
        self._why = why
        late = [run for run, since in self._down.items() if time.monotonic() - since > BOOT]
        why = "; ".join([why, *(removal(run, self._spec.hearth) for run in late)])
        cause = Cause(self._spec.node, None, "queued", why)
        if cause != self._record.cause:
            self._record.cause = cause
            say(self._spec, why)
        elif time.time() - self._written < self._spec.heartbeat:
            return
        self._written = time.time()
        self._record.write(self._spec.record)

    def _stopped(self, node: str) -> LaunchOutcome:
        """Return the outcome of a run that was asked to stop on a node."""
        message = f"stopped while it waited for its turn, as asked on {node}"
        return LaunchOutcome("stopped", Cause(node, None, "stopped", message))

    def _end(self, outcome: LaunchOutcome) -> None:
        """Record the end of the run, which has not begun here."""
        spec, cause = self._spec, outcome.cause
        self._record.cause = cause
        self._record.enter(outcome.state)
        self._record.write(spec.record)
        with suppress(OSError):
            spec.stop_file.unlink()
        say(spec, f"{cause.node}: {cause.message}" if cause else outcome.state)

    # Word to the nodes of the run whose turn has come

    async def _meet(self) -> None:
        """Join the mesh, unless another run has the port; report each change of the reason."""
        if not self._met:
            with suppress(LaunchError):
                await self._mesh.open()
                self._met = True
        if self._why != self._report.why:
            self._report = replace(self._report, why=self._why)
            self._mesh.tell_all(self._report)

    def _hear(self) -> LaunchOutcome | None:
        """Take what other nodes said: that the run has begun, was asked to stop, or has ended."""
        while not self._events.empty():
            match self._events.get_nowait():
                case Joined(node):
                    self._mesh.tell(node, self._report)
                case PeerSaid(_, LaunchOutcome() as outcome):
                    return outcome
                case PeerSaid(_, Stop(node) | NodeReport(stopping=Stop(node))):
                    return self._stopped(node)
                case PeerSaid(_, NodeReport(generation=generation, votes=votes)):
                    if generation or votes.committed:
                        mark_begun(self._spec.workspace, self._spec.run)
        return None
