"""The rendezvous of a run, in rank 0's supervisor: sockets around the councils.

Each launch of the run has its own council. When one ends with `again`, every member leaves and
joins the next.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable

from hearth.base.clock import boot_clock
from hearth.base.packet_filter import listening
from hearth.base.taken_address import AddressWatch
from hearth.supervise.cause import Cause, LaunchOutcome
from hearth.supervise.handshake import (
    HANDSHAKE_TIMEOUT,
    HAS_BEGUN,
    NotYet,
    challenge,
    put_off,
    refuse,
    welcome,
)
from hearth.supervise.interface import free_port, port_error
from hearth.supervise.messages import (
    Beat,
    Ended,
    Go,
    Message,
    Pause,
    ProtocolError,
    Stop,
    Waiting,
    encode,
    receive,
)
from hearth.supervise.queued_nodes import QueuedNodes
from hearth.supervise.quorum import Council
from hearth.supervise.spec import Spec

TICK = 0.25

FUTILE = 4
"""Maximum number of consecutive launches without a new checkpoint; another one would fail, too."""


class Hub:
    """Admits the members of one run, sends heartbeats, and sends the verdict to all.

    It listens on the cluster address only and answers those of the nodes only. `generation` is that
    of the next launch, and `lost` the cause that ended the previous one, if this machine went down.
    `queued` hears of nodes on which the run waits for its turn; `say` takes lines for the log.
    """

    def __init__(
        self,
        spec: Spec,
        generation: int,
        lost: Cause | None,
        queued: QueuedNodes,
        say: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._generation = generation
        self._queued, self._say = queued, say
        self._council = self._call(lost)
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._sources: dict[str, str] = {}
        self._turned_away: set[str] = set()
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._left = asyncio.Event()
        self._begun = lost is not None
        self._over = False
        self._futile = 0
        self._kept: str | None = None
        self._watch = AddressWatch(spec.node, dict(zip(spec.nodes, spec.addresses, strict=True)))

    def _call(self, lost: Cause | None) -> Council:
        """Return a council for the next launch; after a loss its timeout is longer."""
        spec = self._spec
        return Council(
            spec.nodes,
            spec.patience if lost else spec.first_timeout,
            spec.silence_timeout,
            time.monotonic(),
            least=spec.min_nodes if lost and spec.elastic else len(spec.nodes),
            again=spec.return_timeout > 0,
            lost=lost,
            unhurried="stopped" if spec.scripted else "stopped after its step",
        )

    async def open(self) -> None:
        """Start listening.

        Raises `LaunchError` if the port is taken.
        """
        meeting = self._spec.meeting
        try:
            listener = listening(meeting.address, meeting.port, self._spec.addresses)
        except OSError as error:
            raise port_error(meeting.address, meeting.port, error) from error
        self._server = await asyncio.start_server(self._serve, sock=listener)
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """Stop listening, once every member had the time to read the verdict and leave."""
        if self._ticking:
            self._ticking.cancel()
        try:
            async with asyncio.timeout(self._spec.silence_timeout):
                while self._writers:
                    self._left.clear()
                    await self._left.wait()
        except TimeoutError:
            self._say(f"{', '.join(self._writers)} did not take note of the end")
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node = None
        try:
            node = await asyncio.wait_for(self._admit(reader, writer), HANDSHAKE_TIMEOUT)
            while True:
                message = await receive(reader)
                if self._writers.get(node) is not writer:
                    break  # This member has rejoined, or is about to.
                self._hear(node, message)
        except NotYet:
            pass
        except (ProtocolError, OSError, TimeoutError) as error:
            if node is None:
                self._report(writer, error)
        finally:
            if node and self._writers.get(node) is writer:
                del self._writers[node]
                self._council.gone(node)
                self._left.set()
                self._decide()
            writer.close()

    def _report(self, writer: asyncio.StreamWriter, error: Exception) -> None:
        """Log that a peer was turned away, once for each address: it may try again without end."""
        address = (writer.get_extra_info("peername") or ("somebody",))[0]
        if address not in self._turned_away:
            self._turned_away.add(address)
            self._say(f"turned away {address}: {error} (said once for this address)")

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Authenticate a member and return its name.

        Raises `ProtocolError` if it failed to, or does not belong here, and `NotYet` if it waits
        for its turn; the reason was sent to it.
        """
        hello = await challenge(reader, writer, self._spec.token, self._spec.run)
        # Every start has a new token: who knows it has the same run, nodes and generation.
        if hello.node not in self._spec.nodes:
            await refuse(writer, f"{hello.node} is no node of the run")
        if hello.waits:
            self._council.in_queue(time.monotonic())
            self._queued.hear(hello.node, hello.waits)
            await put_off(writer, HAS_BEGUN if self._begun else "its turn comes first")
        if reason := self._council.join(hello.node, time.monotonic()):
            over = self._over
            self._decide()
            await refuse(writer, reason, for_good=over)
        self._writers[hello.node] = writer
        self._sources[hello.node] = hello.source
        self._watch.connected(hello.node)
        welcome(writer, self._spec.token, hello)
        self._greet()
        return hello.node

    def _greet(self) -> None:
        """Send Go if enough members are here, else the missing ones; pause for returned nodes."""
        council = self._council
        if council.started:
            if council.back and not council.paused:
                council.pause()
                self._say(f"{', '.join(council.back)} is back; the others pause after their step")
                self._tell(Pause(), council.team)
        elif team := council.ready(time.monotonic()):
            names = (path.name for path in self._spec.checkpoints.glob("step-*"))
            kept = max(names, default="")
            self._futile = self._futile + 1 if kept == self._kept else 0
            self._kept = kept
            council.start(team)
            self._begun = True
            port = free_port(self._spec.meeting.address)
            sources = tuple(self._sources[node] for node in team)
            self._tell(Go(port, self._generation, team, sources), team)
        else:
            self._tell(Waiting(council.missing))

    def _hear(self, node: str, message: Message) -> None:
        self._council.heard(node, time.monotonic())
        match message:
            case Ended():
                self._council.ended(node, message, time.monotonic())
            case Stop(by, at_once, why):
                self._council.stop(by, at_once, why)
                if not at_once:
                    self._tell(message)
        self._decide()

    def _decide(self) -> None:
        """Send the verdict once there is one; after `again` create the next council."""
        verdict = self._council.decide(time.monotonic())
        if verdict is None or self._over:
            return
        cause = verdict.cause
        if cause and cause.kind == "node_lost" and (taken := self._watch.why_lost(cause.node)):
            message = f"{cause.node} was lost: {taken}"
            verdict = dataclasses.replace(
                verdict, cause=dataclasses.replace(cause, message=message)
            )
        if verdict.state == "again" and verdict.cause:
            verdict = self._unless_futile(verdict, verdict.cause)
        self._tell(verdict)
        if verdict.state != "again":
            self._over = True
            return
        for writer in self._writers.values():
            writer.close()  # It closes after pending data is sent; the member then rejoins.
        self._writers = {}
        self._generation += 1
        self._council = self._call(verdict.cause)

    def _unless_futile(self, verdict: LaunchOutcome, cause: Cause) -> LaunchOutcome:
        """Return `verdict`, or end the run after too many launches without progress."""
        if cause.kind == "node_back" or self._futile + 1 < FUTILE:
            return verdict
        # Checkpoints of a user's script are not known to Hearth.
        ended = "" if self._spec.scripted else " in a row ended before another checkpoint"
        message = f"{cause.message} ({FUTILE} launches{ended})"
        return LaunchOutcome("failed", dataclasses.replace(cause, message=message))

    async def _tick(self) -> None:
        """Send heartbeats and check timeouts; nothing else detects silence."""
        beaten = awake = boot_clock()
        while True:
            await asyncio.sleep(TICK)
            if boot_clock() - awake > self._spec.silence_timeout:
                self._council.slept(boot_clock() - awake)
            awake = boot_clock()
            self._decide()
            if awake - beaten >= self._spec.heartbeat:
                beaten = awake
                self._tell(Beat())
                if not self._over:
                    self._greet()

    def _tell(self, message: Message, nodes: tuple[str, ...] | None = None) -> None:
        """Send to all, or to `nodes`, without waiting: a slow reader must not delay the others."""
        for node, writer in self._writers.items():
            if nodes is None or node in nodes:
                writer.write(encode(message))
