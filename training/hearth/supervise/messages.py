"""The messages of a handshake between supervisors, and how lines are read: JSON objects over TCP.

After the handshake (`handshake`) both speak the protocol of the mesh (`team.messages`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hearth.base.json_lines import JsonLines, ProtocolError


@dataclass(frozen=True)
class Challenge:
    """The answerer's first message: a nonce."""

    nonce: str


@dataclass(frozen=True)
class Hello:
    """The caller's answer: its name, and its proof.

    `source` is the address from which its machine connects to the answerer's where a program binds
    none. `begun` tells that the run has begun on its node.
    """

    node: str
    source: str
    nonce: str
    proof: str = ""
    begun: bool = False


@dataclass(frozen=True)
class Welcome:
    """The answerer's proof that it knows the token too."""

    proof: str


@dataclass(frozen=True)
class Refused:
    """The answerer does not admit this node: permanently, or for now.

    It `waits` if its own turn has not come; the reason is then why.
    """

    reason: str
    for_good: bool = True
    waits: bool = False


Message = Challenge | Hello | Welcome | Refused
_LINES = JsonLines(Message, "a supervisor's message")


def encode(message: Message) -> bytes:
    """Return the line for a message."""
    return _LINES.encode(message)


def decode(line: bytes) -> Message:
    """Parse the message in a line.

    Raises `ProtocolError` if the line is not a valid message.
    """
    message: Message = _LINES.decode(line)
    return message


async def receive(reader: asyncio.StreamReader, parse: Callable[[bytes], Any] = decode) -> Any:
    """Return the next message, `parse`d from its line: this protocol's by default.

    Raises:
        ProtocolError: the other side sent something else.
        ConnectionError: it closed the connection.
    """
    try:
        line = await reader.readline()
    except ValueError as error:  # longer than the stream's limit
        raise ProtocolError("not a supervisor's message: the line is too long") from error
    if not line.endswith(b"\n"):
        raise ConnectionError("the connection was closed")
    return parse(line)
