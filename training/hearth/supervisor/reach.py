"""Proves that this node's connections reach other nodes, beside all else, and tries again.

The proof is a request to the other node's file server. It listens at the same address as that
node's ranks will, at a port that the kernel picks, and answers who knows the run's key; the
connection is bound to no address, as theirs are not.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from hearth.base.clock import boot_clock
from hearth.base.interface import reason
from hearth.base.json_lines import same
from hearth.transfer.serving import PROOF, answer_proof, proof

TIMEOUT = 4.0
"""Seconds for a proof: twice the cost of a lost packet."""

LIFETIME = 60.0
"""Seconds that a proof counts at most; half of them after it the next one is made."""

AGAIN = 5.0
"""Seconds until the next attempt after a failure, twice as many after each further one."""

MOST = 60.0
"""Seconds between two attempts at most."""

_LONGEST = 4096
"""Bytes of an answer."""


@dataclass(frozen=True)
class Proved:
    """An attempt to reach a node has ended."""

    node: str


@dataclass(frozen=True)
class _Attempt:
    """The last attempt to reach a node's file server at a port, and `why` it failed."""

    port: int
    began: float
    ended: float
    why: str = ""
    failures: int = 0

    def is_due(self, now: float) -> bool:
        """Return whether the next attempt is due."""
        pause = min(AGAIN * 2 ** (self.failures - 1), MOST) if self.why else LIFETIME / 2
        return now - self.ended >= pause


class Reach:
    """Proofs that this node reaches the others. `events` gets a `Proved` after each attempt.

    `spawn` makes tasks.

    Attributes:
        joining: the nodes that join a team; proofs are made for them now.
    """

    def __init__(
        self,
        secret: str,
        addresses: Mapping[str, str],
        events: asyncio.Queue[Any],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
    ) -> None:
        self._secret, self._addresses = secret, addresses
        self._events, self._spawn = events, spawn
        self._attempts: dict[str, _Attempt] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self.joining: tuple[str, ...] = ()
        self._since = 0.0

    @property
    def reached(self) -> tuple[str, ...]:
        """The nodes that this one has reached for those that join."""
        now = boot_clock()
        return tuple(
            node
            for node, last in sorted(self._attempts.items())
            if not last.why and last.began >= self._since and now - last.ended < LIFETIME
        )

    @property
    def unreached(self) -> dict[str, str]:
        """The nodes that this one does not reach, with where and why."""
        return {node: last.why for node, last in sorted(self._attempts.items()) if last.why}

    def prove(self, ports: Mapping[str, int], joining: tuple[str, ...]) -> None:
        """Make the proofs that are due, of the nodes whose file servers listen at these ports.

        Earlier ones do not count for others that join.
        """
        now = boot_clock()
        if joining != self.joining:
            self.joining, self._since = joining, now
        for node, port in ports.items():
            last = self._attempts.get(node)
            known = last and last.port == port and (last.why or last.began >= self._since)
            if node not in self._running and not (last and known and not last.is_due(now)):
                self._running[node] = self._spawn(self._attempt(node, port))

    def forget(self, node: str) -> None:
        """Forget the attempts to reach a node, which has lost its connection or got a new one."""
        self._attempts.pop(node, None)

    def close(self) -> None:
        """End the attempts under way."""
        for task in self._running.values():
            task.cancel()

    async def _attempt(self, node: str, port: int) -> None:
        address, last = self._addresses[node], self._attempts.get(node)
        began = boot_clock()
        try:
            why = await _failure(address, port, self._secret)
        finally:
            del self._running[node]
        why = why and f"at {address} port {port}: {why}"
        failures = (last.failures if last else 0) + 1 if why else 0
        self._attempts[node] = _Attempt(port, began, boot_clock(), why, failures)
        self._events.put_nowait(Proved(node))


async def _failure(address: str, port: int, secret: str) -> str:
    """Return why no file server of the run is reached at a place, "" if one is."""
    path = f"/reach/{secrets.token_hex(16)}"
    request = f"GET {path} HTTP/1.0\r\nAuthorization: {proof(secret, path)}\r\n\r\n"
    try:
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(address, port, limit=_LONGEST)
            try:
                writer.write(request.encode())
                answer = await _answer(reader)
            finally:
                writer.transport.abort()
    except OSError as error:
        return reason(error)
    if not answer:
        return "it hung up (firewall?)"
    status, proved = _read(answer)
    if status != HTTPStatus.OK or not same(proved, answer_proof(secret, path, b"")):
        return "it is another program that answers"
    return ""


async def _answer(reader: asyncio.StreamReader) -> bytes:
    """Return an answer until its end, and at most `_LONGEST` bytes of it."""
    found = bytearray()
    while len(found) < _LONGEST and (news := await reader.read(_LONGEST - len(found))):
        found += news
    return bytes(found)


def _read(answer: bytes) -> tuple[int, str]:
    """Return status and proof of an answer; 0 and "" for anything else."""
    first, *lines = answer.decode("latin-1").split("\r\n")
    words = first.split(" ")
    status = int(words[1]) if len(words) > 1 and words[1] in ("200", "403", "404") else 0
    headers = dict(line.split(": ", 1) for line in lines if ": " in line)
    return status, headers.get(PROOF, "")
