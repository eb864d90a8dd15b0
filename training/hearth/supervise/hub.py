"""The meeting point of a run, in rank 0's supervisor: sockets around the council."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable

from hearth.supervise.council import Council
from hearth.supervise.messages import (
    Beat,
    Challenge,
    Ended,
    Go,
    Hello,
    Message,
    ProtocolError,
    Refused,
    Stop,
    Waiting,
    Welcome,
    encode,
    hello_proof,
    receive,
    same,
    welcome_proof,
)
from hearth.supervise.network import free_port, port_error
from hearth.supervise.spec import Spec

HANDSHAKE_TIMEOUT = 10.0
TICK = 0.25


class Hub:
    """Lets the members of one run in, beats a heart, and tells everyone the verdict.

    It listens on the cluster address only. `say` takes lines for the log.
    """

    def __init__(self, spec: Spec, say: Callable[[str], None]) -> None:
        self._spec = spec
        self._say = say
        self._council = Council(
            spec.nodes, spec.ready_timeout, spec.silence_timeout, time.monotonic()
        )
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._left = asyncio.Event()
        self._told = False

    async def open(self) -> None:
        """Listen.

        Raises:
            LaunchError: the port is taken.
        """
        meeting = self._spec.meeting
        try:
            self._server = await asyncio.start_server(self._serve, meeting.address, meeting.port)
        except OSError as error:
            raise port_error(meeting.address, meeting.port, error) from error
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """End, once every member had the time to read the verdict and leave."""
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
            while node:
                self._hear(node, await receive(reader))
        except (ProtocolError, OSError, TimeoutError) as error:
            if node is None:
                peer = writer.get_extra_info("peername") or ("somebody",)
                self._say(f"turned away {peer[0]}: {error}")
        finally:
            if node:
                del self._writers[node]
                self._council.gone(node)
                self._left.set()
                self._decide()
            writer.close()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
        """Return the name of a member that proved itself.

        Raises:
            ProtocolError: it did not, or does not belong here; it was told why.
        """
        nonce = secrets.token_hex(16)
        writer.write(encode(Challenge(nonce)))
        hello = await receive(reader)
        if reason := self._objection(hello, nonce):
            writer.write(encode(Refused(reason)))
            await writer.drain()
            raise ProtocolError(reason)
        assert isinstance(hello, Hello)
        self._council.join(hello.node, time.monotonic())
        self._writers[hello.node] = writer
        writer.write(encode(Welcome(welcome_proof(self._spec.token, hello))))
        self._greet()
        return hello.node

    def _objection(self, hello: Message, nonce: str) -> str | None:
        """Return why this hello is not accepted. Without the token nothing else is told."""
        spec = self._spec
        if not isinstance(hello, Hello):
            return "no hello"
        if not same(str(hello.proof), hello_proof(spec.token, hello, nonce)):
            return f"the token is not that of run '{spec.run}'"
        if (hello.run, hello.generation) != (spec.run, spec.generation):
            return (
                f"here run '{spec.run}' (generation {spec.generation}) meets, "
                f"not '{hello.run}' (generation {hello.generation})"
            )
        if hello.nodes != spec.nodes or hello.node not in spec.nodes:
            return f"the nodes of the run are {', '.join(spec.nodes)}, not {', '.join(hello.nodes)}"
        return self._council.refusal(hello.node)

    def _greet(self) -> None:
        """Tell all who is still missing, or to go."""
        if self._council.missing:
            self._tell(Waiting(self._council.missing))
            return
        self._council.start()
        self._tell(Go(free_port(self._spec.meeting.address)))

    def _hear(self, node: str, message: Message) -> None:
        self._council.heard(node, time.monotonic())
        match message:
            case Ended():
                self._council.ended(node, message, time.monotonic())
            case Stop(by, at_once):
                self._council.stop(by, at_once)
                if not at_once:
                    self._tell(message)
        self._decide()

    def _decide(self) -> None:
        verdict = self._council.decide(time.monotonic())
        if verdict and not self._told:
            self._told = True
            self._tell(verdict)

    async def _tick(self) -> None:
        """Beat, and look at the clock: silence is noticed by nothing else."""
        beaten = awake = _clock()
        while True:
            await asyncio.sleep(TICK)
            if _clock() - awake > self._spec.silence_timeout:
                self._council.slept(_clock() - awake)
            awake = _clock()
            self._decide()
            if awake - beaten >= self._spec.heartbeat:
                beaten = awake
                started = self._council.started
                self._tell(Beat() if started else Waiting(self._council.missing))

    def _tell(self, message: Message) -> None:
        """Send to all without waiting: one that does not read must not delay the others."""
        for writer in self._writers.values():
            writer.write(encode(message))


def _clock() -> float:
    """Return seconds that also pass while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
