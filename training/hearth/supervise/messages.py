"""The protocol between supervisors: one JSON object a line over TCP.

After the handshake (`handshake`):

    hub     Waiting(missing) …  Go(port, …)  Stop(node)  Pause()  Verdict(state, cause)
    member  Stop(node)  Ended(exit_code, failure)
    both    Beat, several times within the silence timeout

After a verdict with `again` every member leaves and joins anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hearth.base.json_lines import JsonLines, ProtocolError
from hearth.supervise.cause import LaunchOutcome


@dataclass(frozen=True)
class Challenge:
    """The hub's first message: a nonce."""

    nonce: str


@dataclass(frozen=True)
class Hello:
    """A member's answer: its name, and its proof.

    `source` is the address from which its machine connects to rank 0's where a program binds none.
    One that waits for its turn in the queue of its node only says why it `waits`. `begun` tells
    that the run has begun on its node.
    """

    node: str
    source: str
    nonce: str
    proof: str = ""
    waits: str = ""
    begun: bool = False


@dataclass(frozen=True)
class Welcome:
    """The hub's proof that it knows the token too."""

    proof: str


@dataclass(frozen=True)
class Refused:
    """The answerer does not admit this node: permanently, or for now.

    It `waits` if its own turn has not come; the reason is then why.
    """

    reason: str
    for_good: bool = True
    waits: bool = False


@dataclass(frozen=True)
class Waiting:
    """Some nodes are still missing."""

    missing: tuple[str, ...]


@dataclass(frozen=True)
class Go:
    """Start torchrun over these nodes, in rank order, with its store on this port of rank 0.

    `sources` are the addresses from which they connect to the store.
    """

    port: int
    generation: int
    nodes: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Beat:
    """A heartbeat."""


@dataclass(frozen=True)
class Stop:
    """A user asked `node` to stop the run: after the step, or at once.

    `why` is the reason if it was not a user.
    """

    node: str
    now: bool = False
    why: str = ""


@dataclass(frozen=True)
class Pause:
    """End after the step: the run is then launched again together with a returned node."""


@dataclass(frozen=True)
class Ended:
    """A member's torchrun ended; `message` is the last real error unless it succeeded.

    `killed`: by a signal that Hearth had not sent, so that another launch may succeed.
    """

    exit_code: int
    rank: int | None = None
    message: str = ""
    killed: bool = False


Message = (
    Challenge
    | Hello
    | Welcome
    | Refused
    | Waiting
    | Go
    | Beat
    | Stop
    | Pause
    | Ended
    | LaunchOutcome
)
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
