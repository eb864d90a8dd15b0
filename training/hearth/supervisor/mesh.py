"""The mesh: one connection between any two supervisors of a run.

Each node listens at its cluster address and its port, and answers the nodes' addresses only. Of a
pair the node of the higher rank dials, again and again while it is not connected. Both send
heartbeats. A connection is over when it breaks, when nothing arrives for the silence timeout, or
when this process itself was suspended for that long. A node whose supervisor is stuck is silent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.interface import port_error, source_towards
from hearth.base.packet_filter import listening
from hearth.base.taken_address import AddressWatch
from hearth.supervisor.decisions.events import Gone, Joined, PeerSaid
from hearth.supervisor.messages import (
    HANDSHAKE_TIMEOUT,
    Beat,
    Callers,
    Message,
    NotAdmitted,
    NotYet,
    ProtocolError,
    challenge,
    encode,
    present,
    receive,
    refuse,
    welcome,
)
from hearth.supervisor.spec import Spec

REDIAL = 0.5
"""Seconds between two attempts to reach a node."""

KNOCK = 5.0
"""Seconds between two questions whether a node of a higher rank, which dials, is there at all."""

TICK = 0.25

MOST_UNSENT = 4 << 20
"""Bytes that may wait for a peer to read them; one that reads none is about to be silent."""

BROKE_OFF = "broke off"
REFUSED = "refused connections: its machine answers, but no supervisor of this run"


@dataclass
class _Connection:
    writer: asyncio.StreamWriter
    source: str
    heard: float


class Mesh:
    """Connects this node to the others of its run, and puts what happens into a queue.

    `events` takes a `Joined` before anything else of a connection and a `Gone` at its end; `say`
    takes lines for the log, `spawn` makes tasks, and `stuck` tells whether this node answers
    nothing now, so that the others have to go on without it.

    Attributes:
        beat: the heartbeat that this node sends.
        beats: the last one of each connected node.
    """

    def __init__(
        self,
        spec: Spec,
        events: asyncio.Queue[Any],
        say: Callable[[str], None],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        stuck: Callable[[], bool],
    ) -> None:
        self._spec = spec
        self._events = events
        self._say = say
        self._spawn = spawn
        self._stuck = stuck
        self._connections: dict[str, _Connection] = {}
        self._turned_away: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._refusing: set[str] = set()
        self._callers = Callers()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._awake = boot_clock()
        self.beat = Beat()
        self.beats: dict[str, Beat] = {}
        self._watch = AddressWatch(spec.node, dict(zip(spec.nodes, spec.addresses, strict=True)))

    @property
    def connected(self) -> tuple[str, ...]:
        """The connected nodes, in rank order."""
        return tuple(node for node in self._spec.nodes if node in self._connections)

    def why_absent(self, node: str) -> str:
        """Return why a node is not connected, as far as this one knows; "" if it is."""
        if node in self._connections or node == self._spec.node:
            return ""
        rank = self._spec.nodes.index(node)
        where = f"{self._spec.addresses[rank]} port {self._spec.ports[rank]}"
        return self._refusals.get(node) or (
            f"{node} does not answer at {where}: its supervisor is not running, or a firewall is "
            "between"
        )

    def source(self, node: str) -> str:
        """Return the source address of a connected node's programs.

        Raises `ConnectionError` if it is connected no longer.
        """
        if node not in self._connections:
            raise ConnectionError(f"{node} is connected no longer")
        return self._connections[node].source

    async def open(self) -> None:
        """Start to listen and to dial.

        Raises:
            LaunchError: the port is taken.
        """
        spec = self._spec
        address, port = spec.address, spec.ports[spec.rank]
        try:
            listener = listening(address, port, spec.addresses)
        except OSError as error:
            raise port_error(address, port, error) from error
        self._server = await asyncio.start_server(
            lambda *streams: self._begin(self._answer(*streams)), sock=listener
        )
        self._awake = boot_clock()
        self._begin(self._tick())
        for rank, node in enumerate(spec.nodes):
            if rank != spec.rank:
                self._begin(self._dial(node, REDIAL if rank < spec.rank else KNOCK))

    def tell(self, node: str, message: Message) -> None:
        """Send a message to a node, if it is connected."""
        if connection := self._connections.get(node):
            if connection.writer.transport.get_write_buffer_size() > MOST_UNSENT:
                self._end(node, BROKE_OFF)
                return
            connection.writer.write(encode(message))

    def tell_all(self, message: Message) -> None:
        """Send a message to all connected nodes."""
        for node in self.connected:
            self.tell(node, message)

    async def close(self) -> None:
        """Close all connections, once all messages are sent or the silence timeout is over."""
        for task in self._tasks:
            task.cancel()
        if self._server:
            self._server.close()
        writers = [connection.writer for connection in self._connections.values()]
        self._connections = {}
        for writer in writers:
            writer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._spec.silence_timeout):
                await asyncio.gather(*(w.wait_closed() for w in writers), return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Admit a node that dials, and read its messages."""
        spec = self._spec
        if self._stuck():
            writer.close()
            return
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                with self._callers.admitted(writer):
                    hello = await challenge(reader, writer, spec.token, spec.run)
                # Every start has a new token: who knows it has the same run and nodes.
                if hello.node not in spec.nodes:
                    await refuse(writer, f"{hello.node} is no node of the run")
                if spec.nodes.index(hello.node) <= spec.rank:
                    writer.write(encode(NotAdmitted("this node dials", for_good=False)))
                    writer.close()
                    return
        except (ProtocolError, OSError, TimeoutError) as error:
            self._report(writer, error)
            writer.close()
            return
        caller = spec.addresses[spec.nodes.index(hello.node)]
        welcome(writer, spec.token, hello, source_towards(caller))
        await self._listen(hello.node, reader, _Connection(writer, hello.source, boot_clock()))

    def _report(self, writer: asyncio.StreamWriter, error: Exception) -> None:
        """Log that a peer was turned away, once for each address: it may try again without end."""
        spec = self._spec
        address = (writer.get_extra_info("peername") or ("a stranger",))[0]
        if isinstance(error, ProtocolError) and address in spec.addresses:
            node = spec.nodes[spec.addresses.index(address)]
            self._refusals.setdefault(node, f"{spec.node} turned {node} away: {error}")
        if address not in self._turned_away:
            self._turned_away.add(address)
            self._say(f"turned away {address}: {error} (said once for this address)")

    async def _dial(self, node: str, pause: float) -> None:
        """Connect to a node whenever it is not connected, or ask whether it is there.

        `pause` are the seconds between two attempts.
        """
        spec = self._spec
        rank = spec.nodes.index(node)
        while True:
            if node not in self._connections and not self._stuck():
                try:
                    async with asyncio.timeout(spec.silence_timeout):
                        streams = await self._call(spec.addresses[rank], spec.ports[rank])
                except ConnectionRefusedError:
                    if node not in self._refusing:
                        self._refusing.add(node)
                        self._events.put_nowait(Gone(node, REFUSED, self._watch.why_lost(node)))
                except ProtocolError as error:
                    self._refused(node, error)
                except (OSError, TimeoutError):
                    if node in self._refusing:
                        self._refusing.discard(node)
                        self._events.put_nowait(Gone(node, "does not answer any more"))
                except NotYet:
                    self._refusing.discard(node)
                else:
                    await self._listen(node, *streams)
            await asyncio.sleep(pause)

    def _refused(self, node: str, error: ProtocolError) -> None:
        """Note that a node refuses this one, and log it the first time."""
        refusal = f"{node} does not let {self._spec.node} in: {error}"
        if self._refusals.get(node) != refusal:
            self._say(refusal)
        self._refusals[node] = refusal

    async def _call(self, address: str, port: int) -> tuple[asyncio.StreamReader, _Connection]:
        """Connect to a node and prove that both belong to the run.

        Raises what `present` and `open_connection` raise.
        """
        spec = self._spec
        reader, writer = await asyncio.open_connection(address, port, local_addr=(spec.address, 0))
        try:
            source = source_towards(address)
            its = await present(reader, writer, spec.token, spec.node, source)
        except BaseException:
            writer.close()
            raise
        return reader, _Connection(writer, its, boot_clock())

    async def _listen(
        self, node: str, reader: asyncio.StreamReader, connection: _Connection
    ) -> None:
        """Put a connection's messages into the queue until it is over."""
        if node in self._connections:
            # The node dials anew, so that it has lost the old connection before this one noticed.
            self._end(node, BROKE_OFF)
        self._connections[node] = connection
        self._refusing.discard(node)
        self._refusals.pop(node, None)
        connection.writer.write(encode(Beat()))
        self._watch.connected(node)
        self._events.put_nowait(Joined(node))
        try:
            while self._connections.get(node) is connection:
                message = await receive(reader)
                self._unless_suspended()
                if self._connections.get(node) is not connection:
                    break
                connection.heard = boot_clock()
                if isinstance(message, Beat):
                    self.beats[node] = message
                else:
                    self._events.put_nowait(PeerSaid(node, message))
        except ProtocolError as error:
            self._say(f"{node}: {error}")
        except OSError:
            pass  # its end is told below
        finally:
            self._unless_suspended()  # the others may have given this node up meanwhile
            if self._connections.get(node) is connection:
                self._end(node, BROKE_OFF)

    def _end(self, node: str, why: str) -> None:
        """Cut the connection to a node."""
        self._connections.pop(node).writer.transport.abort()
        self.beats.pop(node, None)
        self._events.put_nowait(Gone(node, why, self._watch.why_lost(node)))

    def _unless_suspended(self) -> None:
        """Cut all connections if this process was suspended for longer than silence may last.

        What arrives then was sent before the others gave this node up.
        """
        now = boot_clock()
        suspended, self._awake = now - self._awake, now
        if suspended > self._spec.silence_timeout:
            self._say(f"this node itself was suspended or stopped for {suspended:.0f} s")
            for node in self.connected:
                self._end(node, f"suspended or stopped for {suspended:.0f} s")

    async def _tick(self) -> None:
        """Send heartbeats and end silent connections."""
        beaten = boot_clock()
        while True:
            await asyncio.sleep(TICK)
            self._unless_suspended()
            now = boot_clock()
            for node in self.connected:
                silent = now - self._connections[node].heard
                if silent > self._spec.silence_timeout:
                    self._end(node, f"silent for {silent:.0f} s")
            if now - beaten >= self._spec.heartbeat and not self._stuck():
                beaten = now
                self.tell_all(self.beat)
