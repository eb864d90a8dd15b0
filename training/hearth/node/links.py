"""Links from this node to its peers over TCP: latency, bandwidth, and the ports of a run.

Only one speed test uses a node at a time: the measuring node locks both ends, the lower rank first,
so that no deadlock can arise.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from hearth.base.interface import Peer, port_error, reason
from hearth.base.packet_filter import listening

CONNECT = 4.0
"""Connect timeout in seconds: twice the delay that a lost first packet causes."""

ECHOES = 15
MOST_BYTES = 16 << 20
MOST_SECONDS = 0.5
_FREE_WITHIN = 45.0
"""Seconds to wait until two nodes are free for a speed test."""

SILENCE = 2 * CONNECT
"""Seconds without any answer after which a port is taken for closed by a firewall."""

PATIENCE = 30.0
"""Seconds that a slower machine has to begin to listen. Until then it refuses."""

RETRY = 0.2

_PIECE = bytes(1 << 17)
_ANSWER = 10.0

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Talk:
    """Results by peer: round-trip milliseconds, Mbit/s, or the reason why it did not answer."""

    milliseconds: dict[str, float] = field(default_factory=dict)
    mbit: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def talk(own: str, peers: Sequence[Peer], speed: bool) -> Talk:
    """Measure the latency to every peer but `own`, and with `speed` also the bandwidth."""
    return asyncio.run(_talk(own, peers, speed))


async def _talk(own: str, peers: Sequence[Peer], speed: bool) -> Talk:
    talk = Talk()
    others = in_turn(own, peers)
    here = next(peer for peer in peers if peer.name == own)
    await asyncio.gather(*(_greet(here, peer, talk) for peer in others))
    for peer in others:
        if speed and peer.name not in talk.failed:
            lower, higher = sorted((here, peer), key=peers.index)
            try:
                async with asyncio.timeout(_FREE_WITHIN), _held(here, lower), _held(here, higher):
                    talk.mbit[peer.name] = await _speed(here, peer)
            except (OSError, ValueError):  # reachable; the all-reduce will report the rest
                continue
    return talk


def in_turn(own: str, peers: Sequence[Peer]) -> list[Peer]:
    """Return the other peers in rank order from after `own`, so that tests rarely collide."""
    names = [peer.name for peer in peers]
    after = names.index(own) + 1
    return [*peers[after:], *peers[: after - 1]]


async def _greet(here: Peer, peer: Peer, talk: Talk) -> None:
    """Record a peer's round-trip time, or the reason why it does not answer."""
    try:
        async with asyncio.timeout(CONNECT), _connected(here, peer, b"echo\n") as (reader, writer):
            times = []
            for _ in range(ECHOES):
                began = time.perf_counter()
                writer.write(b".")
                await reader.readexactly(1)
                times.append(time.perf_counter() - began)
        talk.milliseconds[peer.name] = round(statistics.median(times) * 1000, 3)
    except (OSError, asyncio.IncompleteReadError) as error:
        talk.failed[peer.name] = reason(error)


async def _speed(here: Peer, peer: Peer) -> float:
    """Return the Mbit/s from `here` to `peer`, as measured by the peer.

    Sends at most 16 MiB or half a second. Raises ValueError if too little arrived to measure.
    """
    async with _connected(here, peer, b"sink\n") as (reader, writer):
        until, sent = time.perf_counter() + MOST_SECONDS, 0
        while sent < MOST_BYTES and time.perf_counter() < until:
            writer.write(_PIECE)
            await writer.drain()
            sent += len(_PIECE)
        writer.write_eof()
        answer: dict[str, Any] = json.loads(await asyncio.wait_for(reader.readline(), _ANSWER))
    if not answer["seconds"]:
        raise ValueError("one packet is no speed")
    return round(answer["bytes"] * 8e-6 / answer["seconds"], 1)


@asynccontextmanager
async def _held(here: Peer, peer: Peer) -> AsyncIterator[None]:
    """Lock `peer` against other nodes' speed tests for the duration of the block."""
    async with _connected(here, peer, b"hold\n") as (reader, _):
        if await reader.readline() != b"ok\n":
            raise ConnectionError(f"{peer.name} does not answer any more")
        yield


@asynccontextmanager
async def _connected(here: Peer, peer: Peer, wanted: bytes) -> AsyncIterator[Streams]:
    """Connect from the cluster address, request the test `wanted`, and disconnect at the end."""
    reader, writer = await asyncio.open_connection(
        peer.address, peer.port, local_addr=(here.address, 0)
    )
    try:
        writer.write(wanted)
        yield reader, writer
    finally:
        writer.close()


# -- the ports of a run ---------------------------------------------------------------------------


def ask(own: str, peers: Sequence[Peer], patience: float = PATIENCE) -> dict[str, str]:
    """Return by peer why it does not answer on the port of the run.

    All nodes ask at the same time: each listens on its own port and connects to the others'.
    `peers` are all nodes. This node, `own`, answers on its port meanwhile.

    Raises `LaunchError` if this node cannot listen on its port.
    """
    return asyncio.run(_ask(own, peers, patience))


async def _ask(own: str, peers: Sequence[Peer], patience: float) -> dict[str, str]:
    here = next(peer for peer in peers if peer.name == own)
    others = [peer for peer in peers if peer.name != own]
    missing = {str(ip_address(peer.address)) for peer in others}
    complete = asyncio.Event()

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        missing.discard((writer.get_extra_info("peername") or ("",))[0])
        writer.close()
        if not missing:
            complete.set()

    try:
        listener = listening(here.address, here.port, [peer.address for peer in others])
    except OSError as error:
        raise port_error(here.address, here.port, error) from error
    async with await asyncio.start_server(note, sock=listener):
        reasons = await asyncio.gather(*(_reach(here, peer, patience) for peer in others))
        # All that can be reached are at it by now; whoever is kept out does not come later.
        with suppress(TimeoutError):
            await asyncio.wait_for(complete.wait(), SILENCE)
    return {peer.name: why for peer, why in zip(others, reasons, strict=True) if why}


async def _reach(here: Peer, peer: Peer, patience: float) -> str:
    """Return the reason why a peer does not answer on its port, or ''."""
    until = time.monotonic() + patience
    while True:
        try:
            async with asyncio.timeout(SILENCE):
                _, writer = await asyncio.open_connection(
                    peer.address, peer.port, local_addr=(here.address, 0)
                )
        except OSError as error:
            if isinstance(error, TimeoutError) or time.monotonic() > until:
                return reason(error)
            await asyncio.sleep(RETRY)
        else:
            writer.close()
            return ""
