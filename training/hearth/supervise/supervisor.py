"""The relaunching supervisor of one node: waiting → running → finished, failed or stopped.

After a lost node or a killed rank the launch returns to waiting: the ranks are ended on all
nodes, and launched together again when all nodes are back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from importlib import import_module
from typing import Any

from hearth.supervise.cause import Cause, LaunchOutcome
from hearth.supervise.life import (
    KILL_GRACE,
    PAUSE,
    STOP,
    Exited,
    Interrupted,
    NodeSupervisor,
    StopAsked,
    live,
)
from hearth.supervise.link import Link
from hearth.supervise.messages import Ended, Go, Message, Pause, Stop, Waiting
from hearth.supervise.record import RunRecord
from hearth.supervise.rendezvous import Hub
from hearth.supervise.spec import Spec
from hearth.supervise.workers import command

_Event = Message | Exited | StopAsked


def supervise(spec: Spec, unit: str | None = None, last: dict[str, Any] | None = None) -> RunRecord:
    """Run this node's part of a run, in place or relaunching, and return the record at its end.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.

    Raises:
        NodeTaken: another run has the node.
        LaunchError: its folders cannot be written.
    """
    kind: type[NodeSupervisor] = _Supervisor
    if spec.in_place:  # by name, since that package builds on this one
        kind = import_module("hearth.team.member").Member
    return live(kind, spec, unit, last)


class _Supervisor(NodeSupervisor):
    def __init__(self, spec: Spec, unit: str | None, last: dict[str, Any] | None) -> None:
        super().__init__(spec, unit, last)
        self._record.missing = list(spec.nodes[:1]) if spec.rank else []
        self._team = spec.nodes
        self._link = self._new_link()
        self._hub: Hub | None = None

    def _new_link(self) -> Link:
        begun = bool(self._record.launches)
        return Link(self._spec, self._patience, begun, self._queued)

    @property
    def _when(self) -> str:
        """The time at which ranks end after a stop request, as text."""
        if self._spec.scripted:
            return f"within {self._spec.stop_grace:g} s"
        return "after the step"

    async def _open(self) -> None:
        spec = self._spec
        if spec.rank == 0:
            first = self._record.generation + bool(self._last)
            self._hub = Hub(spec, first, self._record.cause, self._queued, self._say)
            await self._listen_at(self._hub.open)
        self._say(
            f"run {spec.run}: {spec.node} is rank {spec.rank} of {len(spec.nodes)}, meeting at "
            f"{spec.meeting.address} port {spec.meeting.port}"
        )

    async def _disconnect(self) -> None:
        self._link.close()

    async def _close(self) -> None:
        if self._hub:
            await self._hub.close()

    def _absent(self) -> set[str]:
        away = {*self._spec.nodes} - {*self._team}
        return (away | {*self._record.missing}) - {self._spec.node}

    async def _take_part(self) -> LaunchOutcome | Interrupted:
        """Take part in one launch after another; return the outcome of the run.

        After an interruption of this supervisor, the run goes on when it is back.
        """
        while True:
            self._of_launch = {self._spawn(self._listen())}
            verdict = await self._until_verdict()
            if isinstance(verdict, Interrupted) or verdict.state != "again":
                return verdict
            if self._stopping:  # The loss came before the requested stop.
                return LaunchOutcome("failed", verdict.cause)
            await self._make_ready_again(verdict.cause)

    async def _until_verdict(self) -> LaunchOutcome | Interrupted:
        while True:
            event = await self._events.get()
            if isinstance(event, Interrupted):
                if self._heeds(event):
                    return event
            elif isinstance(event, LaunchOutcome):
                return event
            else:
                await self._handle(event)

    async def _make_ready_again(self, cause: Cause | None) -> None:
        """Clean up after a launch that ended, and connect to the hub again."""
        words = f"{cause.node}: {cause.message}" if cause else "the launch is over"
        self._say(f"ending this node's ranks, to start again together: {words}")
        for task in self._of_launch:
            task.cancel()
        await self._workers.stop(KILL_GRACE)
        self._link.close()
        waiting = [self._events.get_nowait() for _ in range(self._events.qsize())]
        for event in waiting:
            if isinstance(event, StopAsked | Interrupted):
                self._events.put_nowait(event)
        self._forget_pause()
        self._record.launch_ended(cause)
        self._record.missing = [cause.node] if cause and cause.kind == "node_lost" else []
        self._record.write(self._spec.record)
        self._link = self._new_link()

    async def _handle(self, event: _Event) -> None:
        match event:
            case Waiting(missing):
                self._team = self._spec.nodes
                if list(missing) != self._record.missing:
                    self._record.missing = list(missing)
                    self._record.write(self._spec.record)
                    self._say(f"waiting for {', '.join(missing)}")
            case Go():
                await self._launch(event)
            case Pause():
                self._say("a node is back: pausing after the step, to start again with it")
                # Mode "x" keeps a stop request that a user has just written.
                with suppress(OSError), self._spec.stop_file.open("x") as file:
                    file.write(PAUSE)
            case Exited(status):
                self._record.exit_code = status
                self._say(f"torchrun ended with status {status}")
                if self._asked() == STOP and not self._stopping:
                    # The trainer saw the stop file before this supervisor did.
                    await self._handle(StopAsked(now=False))
                # In a thread: while a long log is read, the other nodes must hear from this one.
                self._link.send(await asyncio.to_thread(self._report, status))
                if status and not self._stopping:
                    await self._say_kernel_messages()
            case StopAsked(at_once, why) if at_once or not self._stopping:
                self._stopping = True
                self._say(why or f"asked to stop {'at once' if at_once else self._when}")
                if self._link.connected:
                    self._link.send(Stop(self._spec.node, at_once, why))
                else:
                    message = why or "stopped before all were ready"
                    cause = Cause(self._spec.node, None, "stopped", message)
                    self._events.put_nowait(LaunchOutcome("stopped", cause))
            case Stop(node):
                # Each trainer polls only its own node's file: write it, whichever node was asked.
                self._stopping = True
                if node != self._spec.node:
                    self._say(f"asked to stop on {node}")
                with suppress(OSError):
                    self._spec.stop_file.write_text(STOP)
                if self._spec.scripted and not self._told:
                    self._told = True
                    self._tasks.add(self._spawn(self._workers.tell_to_end()))
                    self._tasks.add(self._spawn(self._stop_after_grace()))

    async def _launch(self, go: Go) -> None:
        words = command(self._spec, go)
        self._begin_launch(words)
        self._record.generation = go.generation
        self._record.missing = []
        self._team = go.nodes
        self._record.cause = None
        self._record.enter("running")
        self._record.write(self._spec.record)
        absent = [node for node in self._spec.nodes if node not in go.nodes]
        ready = f"going on without {', '.join(absent)}" if absent else "all nodes are ready"
        self._say(f"{ready}; starting torchrun (generation {go.generation})")
        try:
            await self._workers.start(words, go)
        except OSError as error:
            self._say(f"cannot start {words[0]}: {error.strerror}")
            self._link.send(Ended(127, message=f"cannot start {words[0]}: {error.strerror}"))
        else:
            self._of_launch.add(self._spawn(self._wait_for_workers()))

    async def _listen(self) -> None:
        """Put the hub's messages into the queue, in a later launch once the GPUs answer."""
        if self._record.launches and not await self._gpus_answer():
            return
        async for message in self._link.messages():
            self._events.put_nowait(message)
