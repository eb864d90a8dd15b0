"""A member's connection to the hub. Every node has one, rank 0 too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from hearth.base.taken_address import AddressWatch
from hearth.supervise.cause import Cause, LaunchOutcome
from hearth.supervise.handshake import InTurn, NotYet, present
from hearth.supervise.interface import source_towards
from hearth.supervise.messages import Beat, Go, Message, ProtocolError, encode, receive
from hearth.supervise.queued_nodes import QueuedNodes
from hearth.supervise.spec import Spec

RETRY = 0.5
PATIENCE = 5.0
"""Seconds that a member waits longer than the hub, whose verdict names all missing nodes."""


class Link:
    """Joins the hub for one launch, sends heartbeats, and turns any lost connection into a verdict.

    `patience` is the timeout in seconds for finding the hub and for the other members. If the hub's
    machine answers but no hub listens there, the timeout is only that of a first launch: the run is
    over on that machine. While it waits for its turn there, the timeout does not begin.
    `begun` tells that the run has begun on this node; `queued` hears of that turn.
    """

    def __init__(self, spec: Spec, patience: float, begun: bool, queued: QueuedNodes) -> None:
        self._spec = spec
        self._patience = patience
        self._begun = begun
        self._queued = queued
        self._writer: asyncio.StreamWriter | None = None
        self._started = False
        self._watch = AddressWatch(spec.node, {spec.nodes[0]: spec.meeting.address})

    @property
    def connected(self) -> bool:
        """Whether messages can be sent to the hub."""
        return self._writer is not None

    def send(self, message: Message) -> None:
        """Send a message to the hub, if connected."""
        if self._writer:
            self._writer.write(encode(message))

    def close(self) -> None:
        """Close the connection."""
        if self._writer:
            self._writer.close()
            self._writer = None

    async def messages(self) -> AsyncIterator[Message]:
        """Yield the hub's messages; the last one is a Verdict, this member's own if need be."""
        began = time.monotonic()
        until = began + self._patience + PATIENCE
        while not self._started:
            try:
                async with asyncio.timeout(until - time.monotonic()) as limit:
                    reader = await self._join(limit)
            except TimeoutError:
                yield self._nobody_there(time.monotonic() - began)
                return
            except ProtocolError as error:
                yield self._turned_away(error)
                return
            beating = asyncio.create_task(self._beat())
            try:
                while True:
                    message = await self._next(reader)
                    self._started = self._started or isinstance(message, Go)
                    yield message
                    if isinstance(message, LaunchOutcome):
                        return
            except (OSError, TimeoutError, ProtocolError) as error:
                if self._started:
                    yield self._hub_lost(error)
                else:
                    await asyncio.sleep(RETRY)
            finally:
                beating.cancel()
                self.close()

    async def _join(self, limit: asyncio.Timeout) -> asyncio.StreamReader:
        """Connect and return the stream once both ends have proved that they belong to the run.

        Retries until it is cancelled: rank 0's supervisor may start later. `limit`, which cancels
        it, is put off while that one waits for its turn.

        Raises:
            ProtocolError: the hub refused this member, or is not a hub.
            TimeoutError: nobody listens there.
        """
        refused: float | None = None
        while True:
            try:
                async with asyncio.timeout(self._spec.silence_timeout):
                    return await self._shake_hands()
            except ConnectionRefusedError:
                refused = refused or time.monotonic()
                if time.monotonic() - refused > self._spec.first_timeout + PATIENCE:
                    raise TimeoutError from None
            except InTurn as error:
                refused = None
                limit.reschedule(asyncio.get_running_loop().time() + self._patience + PATIENCE)
                self._queued.hear(self._spec.nodes[0], str(error))
            except (NotYet, OSError, TimeoutError):
                refused = None
            await asyncio.sleep(RETRY)

    async def _shake_hands(self) -> asyncio.StreamReader:
        spec = self._spec
        reader, writer = await asyncio.open_connection(
            spec.meeting.address, spec.meeting.port, local_addr=(spec.address, 0)
        )
        try:
            source = source_towards(spec.meeting.address)
            await present(reader, writer, spec.token, spec.node, source, begun=self._begun)
        except BaseException:
            writer.close()
            raise
        self._writer = writer
        self._watch.connected(spec.nodes[0])
        return reader

    async def _next(self, reader: asyncio.StreamReader) -> Message:
        """Return the next message other than a heartbeat.

        Raises `TimeoutError` if the hub was silent for too long.
        """
        while True:
            try:
                async with asyncio.timeout(self._spec.silence_timeout):
                    message = await receive(reader)
            except TimeoutError:
                # If this process itself was suspended, the message is already in the buffer.
                async with asyncio.timeout(0.5):
                    message = await receive(reader)
            if not isinstance(message, Beat):
                return message

    async def _beat(self) -> None:
        while True:
            self.send(Beat())
            await asyncio.sleep(self._spec.heartbeat)

    def _nobody_there(self, seconds: float) -> LaunchOutcome:
        hub, seconds = self._spec.nodes[0], min(round(seconds), self._patience)
        message = (
            f"{hub} did not answer at {self._meeting} within {seconds:g} s: its "
            "supervisor is not running, or a firewall is between"
        )
        return LaunchOutcome("failed", Cause(hub, None, "not_ready", message))

    def _turned_away(self, error: ProtocolError) -> LaunchOutcome:
        node, hub = self._spec.node, self._spec.nodes[0]
        message = f"{node} was not let in by {hub} at {self._meeting}: {error}"
        return LaunchOutcome("failed", Cause(node, None, "not_ready", message))

    @property
    def _meeting(self) -> str:
        return f"{self._spec.meeting.address} port {self._spec.meeting.port}"

    def _hub_lost(self, error: Exception) -> LaunchOutcome:
        hub = self._spec.nodes[0]
        if taken := self._watch.why_lost(hub):
            what = f"{hub} was lost: {taken}"
        elif isinstance(error, TimeoutError):
            what = f"{hub} was silent for {self._spec.silence_timeout:g} s: it hangs, sleeps, or "
            what += "its network is cut"
        else:
            what = f"the supervisor of {hub} broke off: it was killed or the machine went down"
        state = "again" if self._spec.return_timeout else "failed"
        return LaunchOutcome(state, Cause(hub, None, "node_lost", what))
