"""The handshake of two supervisors: each proves that it knows the run's token without sending it.

answerer  Challenge(nonce)
caller    Hello(node, its source, nonce, proof)         or the answerer sends NotAdmitted
answerer  Welcome(proof, source)
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import hmac
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from hearth.base.json_lines import same
from hearth.base.text import plain
from hearth.supervisor.messages import (
    Challenge,
    Hello,
    NotAdmitted,
    ProtocolError,
    Welcome,
    encode,
    receive,
)

HANDSHAKE_TIMEOUT = 10.0
"""Seconds in which a caller has to prove itself."""


MOST_CALLERS = 64
"""Connections that may wait for a valid hello; a new one ends the oldest of them."""


class Callers:
    """The connections that have not proved themselves yet: strangers keep no node out."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.StreamWriter, None] = {}

    @contextmanager
    def admitted(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Count a connection among them during the block."""
        if len(self._waiting) >= MOST_CALLERS:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.transport.abort()
        self._waiting[writer] = None
        try:
            yield
        finally:
            self._waiting.pop(writer, None)


class NotYet(Exception):
    """The other side refuses this node for now; its text is the reason."""


async def present(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    token: str,
    node: str,
    source: str,
) -> str:
    """Prove to the answerer that `node` belongs to the run; return its source, proved likewise.

    `source` is the address from which this machine connects where a program binds none.

    Raises:
        ProtocolError: the answerer refused this node for good, or does not belong to the run.
        NotYet: it refused this node for now.
        ConnectionError: it closed the connection.
    """
    challenge = await receive(reader)
    if not isinstance(challenge, Challenge):
        raise ProtocolError("it is no supervisor of a run")
    hello = Hello(node, source, secrets.token_hex(16))
    hello = dataclasses.replace(hello, proof=hello_proof(token, hello, challenge.nonce))
    writer.write(encode(hello))
    answer = await receive(reader)
    if isinstance(answer, NotAdmitted):
        reason = plain(answer.reason)
        raise ProtocolError(reason) if answer.for_good else NotYet(reason)
    if not isinstance(answer, Welcome) or not same(
        answer.proof, welcome_proof(token, hello, answer.source)
    ):
        raise ProtocolError("it does not know the run's token")
    return answer.source


async def challenge(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str, run: str
) -> Hello:
    """Return the hello of a caller that has proved to know the token of `run`.

    Raises:
        ProtocolError: it did not, and was told the reason.
        ConnectionError: it closed the connection.
    """
    nonce = secrets.token_hex(16)
    writer.write(encode(Challenge(nonce)))
    hello = await receive(reader)
    if not isinstance(hello, Hello):
        await refuse(writer, "no hello")
    if not same(hello.proof, hello_proof(token, hello, nonce)):
        await refuse(writer, f"the token is not that of run '{run}'")
    return hello


def welcome(writer: asyncio.StreamWriter, token: str, hello: Hello, source: str) -> None:
    """Admit the caller of `hello`, with the proof that this side knows the token too.

    `source` is the address from which this machine connects to the caller's.
    """
    writer.write(encode(Welcome(welcome_proof(token, hello, source), source)))


async def refuse(writer: asyncio.StreamWriter, reason: str) -> NoReturn:
    """Send a caller its refusal. Raises `ProtocolError` with the reason."""
    writer.write(encode(NotAdmitted(reason)))
    await writer.drain()
    raise ProtocolError(reason)


def hello_proof(token: str, hello: Hello, challenge: str) -> str:
    """Return a caller's proof that it knows the token: an answer to the challenge."""
    said = dataclasses.replace(hello, proof="")
    return _mac(token, "member", challenge, encode(said).decode())


def welcome_proof(token: str, hello: Hello, source: str) -> str:
    """Return the answerer's proof that it knows the token: an answer to the caller's hello."""
    return _mac(token, "welcome", hello.nonce, hello.proof, source)


def group_key(token: str, generation: int) -> str:
    """Return the key of the ranks of one generation; the token cannot be derived from it."""
    return _mac(token, "ring", str(generation))


def file_key(token: str) -> str:
    """Return the key of the run's file servers; the token cannot be derived from it."""
    return _mac(token, "files")


def _mac(token: str, *said: str) -> str:
    return hmac.new(token.encode(), json.dumps(said).encode(), hashlib.sha256).hexdigest()
