"""The protocol between a supervisor and its node's ranks: one JSON object a line over a socket.

    rank        Here(local_rank, pid)
    rank        Waiting(why, …)           it is in no group
    supervisor  LoadAlone(choices) | Form(generation, nodes, address, port, …) | Leave(save)
    rank        Formed(generation, …)     it trains
    rank        Doing(what, …) …          at the start of each piece of work
    rank        Alive() …                 every few seconds while it is at one
    rank        Disk(why)                 the node's disk takes no writes
    supervisor  Interrupt(generation, why) | Pause(generation)
    rank        Waiting("broken" | "paused", …) …
    rank        RankEnded(outcome, step)      it exits with 0

Ranks that take no orders, of fsdp and pipeline, send only Here, Doing and Alive.

The supervisor listens at the Unix socket `control` in the results folder, which is the ranks'
working directory. The layout of the run names every node with its number of ranks; a rank's number
in it, the stable rank, never changes, whatever group it is in.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hearth.base.json_lines import JsonLines, ProtocolError

CONTROL = "HEARTH_CONTROL"
"""Environment variable of the ranks that a supervisor gives orders to."""

WATCHED = "HEARTH_WATCHED"
"""Environment variable of ranks that take no orders, and tell their supervisor what they do."""

LAYOUT = "HEARTH_LAYOUT"
"""Environment variable with the layout of the run as JSON: `[["tower", 1], ["laptop", 2]]`."""

RANK_AGAIN = 75
"""Exit status of a rank whose group broke before it could train: start it again."""

RANK_APART = 76
"""Exit status of a rank with an error of its machine, which another one need not have."""

SOCKET = "control"
"""Name of the supervisor's socket in the results folder."""

EVALUATION = ("evaluation", "sample answer")
"""What a rank does in a held-out evaluation, as `Doing` has it."""

FOR_OTHERS = "waiting for the others"
"""What a rank does that has done its own part, as `Doing` has it."""

MICRO_BATCH, OPTIMIZER, SEARCH = "micro-batch", "optimizer step", "search for non-finite rows"
ANSWERS = "log-probabilities of answers"
"""What a rank does of its own in a step, as `Doing` has it."""

NodeRanks = tuple[tuple[str, int], ...]
"""Every node of a run, in rank order, with its number of ranks."""


@dataclass(frozen=True)
class LoadAlone:
    """A group is training: load the model alone with these choices, then wait."""

    choices: dict[str, Any]


@dataclass(frozen=True)
class Form:
    """Form the group of all ranks of `nodes`, which are in rank order.

    The first local rank of the first node opens the store at `address:port`; it answers `clients`
    only, the cluster addresses of the nodes. `fresh`: no member has loaded anything yet; they
    construct the trainer together. `left` has, by node, why nodes leave in order, or have left. The
    ranks prove to each other that they know `key`, which no supervisor sends to another; the groups
    that torchrun forms have none.
    """

    generation: int
    nodes: tuple[str, ...]
    address: str
    port: int
    clients: tuple[str, ...]
    fresh: bool = False
    left: dict[str, str] = field(default_factory=dict)
    key: str = field(default="", repr=False)


@dataclass(frozen=True)
class Interrupt:
    """The group of this generation is over, and so is whatever its ranks do together."""

    generation: int
    why: str


@dataclass(frozen=True)
class Pause:
    """Leave the group of this generation together, after the current step."""

    generation: int


@dataclass(frozen=True)
class Leave:
    """End with exit status 0, without the others; `save`: after a checkpoint of the own state."""

    save: bool


@dataclass(frozen=True)
class Here:
    """The first message of a rank."""

    local_rank: int
    pid: int


@dataclass(frozen=True)
class Waiting:
    """The rank is in no group and waits for an order.

    Attributes:
        why: "new" (it has not been in a group yet), "paused" or "broken".
        generation: of the last group that it was in or should have formed; 0 if there was none.
        step: steps that it has done.
        loaded: whether it has a model.
        message: the error that broke that group or kept it from forming.
    """

    why: str
    generation: int
    step: int
    loaded: bool
    message: str = ""


@dataclass(frozen=True)
class Formed:
    """The rank is in the group of this generation and trains.

    `choices` are the values that a rank needs to load alone.
    """

    generation: int
    step: int
    choices: dict[str, Any]


@dataclass(frozen=True)
class Doing:
    """The rank begins a piece of work.

    `allowed` is the timeout in seconds; 0: it waits for others, or has no bound. While
    it receives a part of the exchange, `sender` is the node it comes from, at `mbit` Mbit/s.
    """

    what: str
    step: int
    part: int
    allowed: float
    sender: str = ""
    mbit: float = 0.0


@dataclass(frozen=True)
class Alive:
    """The rank's process lives, at any work: one that was stopped sends nothing."""


@dataclass(frozen=True)
class Disk:
    """The node's disk takes no writes, and `why`; "" once it does again. The run goes on."""

    why: str


@dataclass(frozen=True)
class RankEnded:
    """Training is over for this rank: "finished" or "stopped"; it exits with status 0."""

    outcome: str
    step: int


Order = LoadAlone | Form | Interrupt | Pause | Leave
News = Here | Waiting | Formed | Doing | Alive | Disk | RankEnded
Message = Order | News
_LINES = JsonLines(Message, "a message of a rank or for one")
encode, decode = _LINES.encode, _LINES.decode


def layout_text(layout: NodeRanks) -> str:
    """Return a layout as the value of the environment variable LAYOUT."""
    return json.dumps(layout, separators=(",", ":"))


def parse_layout(text: str) -> NodeRanks:
    """Return the layout in the environment variable LAYOUT.

    Raises `ProtocolError` unless it names different nodes, each with one rank or more.
    """
    try:
        layout = tuple((node, ranks) for node, ranks in json.loads(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError(f"{LAYOUT} is not a layout of ranks: {text[:200]!r}") from error
    names = [node for node, _ in layout]
    valid = all(
        isinstance(node, str) and type(ranks) is int and ranks > 0 for node, ranks in layout
    )
    if not valid or not layout or len({*names}) < len(names):
        raise ProtocolError(f"{LAYOUT} is not a layout of ranks: {text[:200]!r}")
    return layout


def node_of_each_rank(layout: NodeRanks) -> tuple[str, ...]:
    """Return the node of every stable rank."""
    return tuple(node for node, ranks in layout for _ in range(ranks))


def listen_for_ranks(folder: Path) -> socket.socket:
    """Return the socket in a results folder where its supervisor listens for its ranks.

    Only processes of the same user may connect. A socket that an earlier supervisor left there is
    replaced.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(listener.fileno(), 0o600)
        with _short(folder) as path:
            with suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


def connect_to_supervisor(folder: Path) -> socket.socket:
    """Return a connection to the supervisor that listens in a results folder.

    Raises `OSError` if none does.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as path:
            connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a path of the socket that fits the 108 bytes of a Unix address, whatever the folder."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)
