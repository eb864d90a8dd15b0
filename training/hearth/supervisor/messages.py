"""The protocol between the supervisors of a mesh: one JSON object a line over TCP.

In the handshake each proves that it knows the run's token without sending it:

    answerer  Challenge(nonce)
    caller    Hello(node, its source, nonce, proof)     or the answerer sends NotAdmitted
    answerer  Welcome(proof, source)

After it any two nodes of a run speak:

    both    NodeReport(…), on connecting and on each change of the node's state
    both    Propose(attempt) → Vote(generation, yes); Form(generation, …)
    both    Stop(node) …  LaunchOutcome(state, cause)
    both    Beat, several times within the silence timeout
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
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from hearth.base.json_lines import JsonLines, ProtocolError, same
from hearth.base.text import plain
from hearth.ranks.control_protocol import Form
from hearth.supervisor.cause import LaunchOutcome, RanksFailure
from hearth.supervisor.decisions.voting import Attempt, Votes


@dataclass(frozen=True)
class Challenge:
    """The answerer's first message: a nonce."""

    nonce: str


@dataclass(frozen=True)
class Hello:
    """The caller's answer: its name, and its proof.

    `source` is its machine's default source address for connections to the answerer's.
    """

    node: str
    source: str
    nonce: str
    proof: str = ""


@dataclass(frozen=True)
class Welcome:
    """The answerer's proof that it knows the token too, and its `source` as in `Hello`."""

    proof: str
    source: str


@dataclass(frozen=True)
class NotAdmitted:
    """The answerer does not admit this node: permanently, or for now."""

    reason: str
    for_good: bool = True


RanksState = Literal[
    "queued",
    "starting",
    "ready",
    "loading",
    "loaded",
    "forming",
    "training",
    "breaking",
    "broken",
    "paused",
    "ended",
    "failed",
    "away",
]
"""State of a node's ranks together.

queued:   the node has none, as the run waits for its turn there; `why` has the reason.
starting: at least one of them was started and has not told yet that it waits, or all are down.
ready:    all wait, and at least one has not loaded the model.
loading:  they were told to load the model alone.
loaded:   all wait, have loaded the model, and were in no group since their start.
forming:  they were told to form a group, and at least one has not told yet that it formed.
training: all are in the group.
breaking: at least one is out of a group that it was to be in, and another is not yet.
broken:   all wait, out of a group that broke.
paused:   all wait, out of a group that they left together.
ended:    all have ended by themselves, as finished or stopped.
failed:   at least one ended in another way; the node's other ranks are ended, too.
away:     the node has none, as the owner wants the machine; its supervisor brings them back.
"""

TEAMED: frozenset[RanksState] = frozenset(("forming", "training", "breaking"))
"""States of ranks that are in a group, on their way into it or out of it."""

WAITING: frozenset[RanksState] = frozenset(("loaded", "broken", "paused"))
"""States of ranks that wait for a group, with the model loaded."""


@dataclass(frozen=True)
class Beat:
    """A heartbeat.

    Attributes:
        step: the step that its ranks are in, or have just done; 0: none.
        doing: what its ranks do that keeps them from the exchange of that step; "": nothing.
        sender: the node that sends them a part of the exchange just now; "": none.
        mbit: the speed of that link in Mbit/s.
    """

    step: int = 0
    doing: str = ""
    sender: str = ""
    mbit: float = 0.0


@dataclass(frozen=True)
class Stop:
    """A user asked `node` to stop the run: after the step, or at once.

    `why` is the reason if it was not a user.
    """

    node: str
    now: bool = False
    why: str = ""


@dataclass(frozen=True)
class Reaches:
    """Attempts of a node to reach others.

    Attributes:
        reached: the nodes that its connections reach, as it has proved.
        joining: the nodes that were to join the team when it was proved.
        unreached: the nodes that its connections do not reach, with where and why.
    """

    reached: tuple[str, ...] = ()
    joining: tuple[str, ...] = ()
    unreached: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeReport:
    """The whole state of a node as the others need to know it.

    Attributes:
        node: the node that it is about, and that sent it.
        state: of its ranks together.
        votes: its memory of teams.
        connected: the nodes that it is connected to.
        generation: of the team that it was last told to form, since its supervisor's start; 0:
            none. It stays when the ranks are started again.
        trained: generation of the last group that the ranks that now live have trained in; 0: none,
            so that they do not have the run's state.
        step: the greatest number of steps that its ranks have done.
        choices: values that a rank needs to load alone; None until its ranks know them.
        why: the reason why its ranks left their last group, or could not form it, as they told it;
            "" if these ranks have been in none. In the state "queued" that of the wait.
        failure: the error that ended its ranks, in the state "failed".
        ended: "finished" or "stopped", in the state "ended".
        leaving: the reason why this node is to leave the others in order; "": it is not.
        returns: whether it leaves as the owner wants the machine: its supervisor stays, goes on to
            vote, and starts the ranks again when the owner lets go.
        parting: the nodes that leave, as far as it has heard.
        stopping: the request to stop the run that it knows of.
        voteless: the reason why it cannot take part in a vote (its disk is full); "": it can.
        serves: the port of its file server.
        checkpoint: the name of its newest checkpoint, in the state "away".
        reaches: the nodes that its connections reach, and those that they do not.
    """

    node: str
    state: RanksState
    votes: Votes
    connected: tuple[str, ...] = ()
    generation: int = 0
    trained: int = 0
    step: int = 0
    choices: dict[str, Any] | None = None
    why: str = ""
    failure: RanksFailure | None = None
    ended: str = ""
    leaving: str = ""
    returns: bool = False
    parting: tuple[str, ...] = ()
    stopping: Stop | None = None
    voteless: str = ""
    serves: int = 0
    checkpoint: str = ""
    reaches: Reaches = field(default_factory=Reaches)

    @property
    def only_votes(self) -> bool:
        """Whether it cannot be in the next team, and may hand in its vote for it."""
        return bool(self.leaving or self.voteless) or self.state == "failed"

    @property
    def out_of_group(self) -> bool:
        """Whether its ranks wait after a group, which broke before they loaded perhaps."""
        return self.state in WAITING or (self.state == "ready" and bool(self.why))


@dataclass(frozen=True)
class Propose:
    """A request to promise a team; `fresh`: its ranks construct the trainer together."""

    attempt: Attempt
    fresh: bool = False


@dataclass(frozen=True)
class Vote:
    """The answer to `Propose`: a promise that is on the voter's disk, or a refusal.

    `votes` are the voter's after it, `why` is the reason for a refusal.
    """

    generation: int
    yes: bool
    votes: Votes
    why: str = ""


Message = (
    Challenge
    | Hello
    | Welcome
    | NotAdmitted
    | NodeReport
    | Propose
    | Vote
    | Form
    | Stop
    | LaunchOutcome
    | Beat
)
_LINES = JsonLines(Message, "a supervisor's message")
encode, decode = _LINES.encode, _LINES.decode


async def receive(reader: asyncio.StreamReader) -> Message:
    """Return the next message.

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
    return decode(line)


HANDSHAKE_TIMEOUT = 10.0
"""Seconds that a caller has to prove itself."""


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

    `source` is this machine's default source address.

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

    `source` is this machine's source address for connections to the caller's.
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
