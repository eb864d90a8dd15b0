"""Server on this node's cluster address for the other nodes' tests; exits when idle.

A client names the test in its first line:

    echo   returns every byte, for the latency
    hold   answers "ok" once no other client holds this node; held until the client disconnects
    sink   discards everything; at the end reports the bytes received and the seconds they took
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from hearth.base.errors import LaunchError
from hearth.base.packet_filter import listening
from hearth.base.places import TOKENS

LONGEST = 600.0
"""Seconds after which a listener exits, even with clients connected."""

CHUNK = 1 << 18


class _Listener:
    def __init__(self, idle: float) -> None:
        self._idle = idle
        self._free = asyncio.Lock()
        self._open = 0
        self._last = time.monotonic()

    async def serve(self, listener: socket.socket) -> None:
        """Print the port, then serve clients until none has connected for the idle time."""
        server = await asyncio.start_server(self._answer, sock=listener)
        print(server.sockets[0].getsockname()[1], flush=True)
        until = time.monotonic() + LONGEST
        while time.monotonic() < until:
            await asyncio.sleep(0.5)
            if not self._open and time.monotonic() - self._last > self._idle:
                break
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            wanted = await asyncio.wait_for(reader.readline(), 10)
            handler = {b"echo\n": _echo, b"hold\n": self._hold, b"sink\n": _sink}.get(wanted)
            if handler:
                await handler(reader, writer)
        except (OSError, TimeoutError, ValueError):
            pass  # A client that disconnects or sends nonsense must not stop the server.
        finally:
            self._open -= 1
            self._last = time.monotonic()
            writer.close()

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._free:
            writer.write(b"ok\n")
            await reader.read()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


async def _sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(CHUNK)  # Bytes buffered before the clock starts do not count.
    began = ended = time.perf_counter()
    count = 0
    while data := await reader.read(CHUNK):
        count += len(data)
        ended = time.perf_counter()
    told = {"bytes": count, "seconds": ended - began}
    writer.write(json.dumps(told).encode() + b"\n")
    await writer.drain()


def start(address: str, allowed: Sequence[str], idle: float) -> int:
    """Start a listener that outlasts this process; return its port.

    It answers the addresses `allowed` only, and exits after `idle` seconds without a request.

    Raises `LaunchError` if the address cannot be listened on.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "hearth.node.listener", address, str(idle), *allowed],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name not in TOKENS},
        start_new_session=True,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout as said, suppress(ValueError):
        return int(said.readline())
    raise LaunchError(f"nothing can listen on {address}: does this machine have that address?")


if __name__ == "__main__":
    _, own, seconds, *others = sys.argv
    asyncio.run(_Listener(float(seconds)).serve(listening(own, 0, others)))
