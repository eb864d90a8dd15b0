"""A rank's side of the socket to its supervisor: it reports its work, and receives orders.

A thread reads the orders, so that an `Interrupt` reaches a rank that waits for a peer. If the
supervisor dies, the rank ends. Ranks that take no orders only report their work.
"""

from __future__ import annotations

import atexit
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from hearth.base.errors import LaunchError
from hearth.base.text import counted
from hearth.ranks.control_protocol import (
    CONTROL,
    FOR_OTHERS,
    LAYOUT,
    SOCKET,
    WATCHED,
    Alive,
    Doing,
    Form,
    Here,
    Interrupt,
    Leave,
    LoadAlone,
    News,
    Pause,
    ProtocolError,
    RankEnded,
    Waiting,
    connect_to_supervisor,
    decode,
    encode,
    node_of_each_rank,
    parse_layout,
)

_TERMINATED = 128 + signal.SIGTERM


def take_ranks_in_place() -> None:
    """Under a supervisor that forms groups in place, set this rank's stable rank in RANK.

    torchrun starts the ranks of this node only and numbers them from 0. WORLD_SIZE becomes the
    number of all ranks in the layout.

    Raises `LaunchError` if the layout lacks this node, or has another number of ranks on it.
    """
    if CONTROL not in os.environ:
        return
    nodes, node = _node_of_each_rank(os.environ), os.environ["HEARTH_NODE"]
    own = [rank for rank, each in enumerate(nodes) if each == node]
    started = int(os.environ["LOCAL_WORLD_SIZE"])
    if len(own) != started:
        raise LaunchError(
            f"{node} started {counted(started, 'rank')}, but the run has {len(own)} "
            "there: all nodes need the same specification of the run"
        )
    rank = own[int(os.environ["LOCAL_RANK"])]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(len(nodes)))
    # A lost peer breaks the group. NCCL's watchdog would end this process instead, or write down
    # what NCCL did last, and leaving the group would wait for it: a minute, or eight.
    os.environ |= {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
        "TORCH_NCCL_ENABLE_MONITORING": "0",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
        "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "0",
    }


def _node_of_each_rank(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the node of every stable rank of the run.

    Raises `LaunchError` if the environment has no layout of it, or a wrong one.
    """
    try:
        return node_of_each_rank(parse_layout(environment.get(LAYOUT, "")))
    except ProtocolError as error:
        raise LaunchError(f"{error}; the supervisor of this node must set it") from error


def connection_here() -> socket.socket:
    """Return a connection to the supervisor that listens in this folder.

    Raises `LaunchError` if it does not answer.
    """
    folder = Path.cwd()
    try:
        return connect_to_supervisor(folder)
    except OSError as error:
        raise LaunchError(
            f"{folder / SOCKET}, the socket of this node's supervisor, does not answer "
            f"({error.strerror}): start the run with `hearth train`"
        ) from error


class Control:
    """The connection of a rank to its supervisor.

    Attributes:
        nodes: the node of every stable rank of the run.
        generation: of the newest group that this rank was told to form; set by `World`.
        interrupted: the newest interrupt, whose group and all before it are over.
        reasons: why groups ended, by generation, as far as the supervisor said so.
        leaving: the order to end, once it has come.
        on_interrupt: called by the reading thread when the current group is over.
    """

    def __init__(self, connection: socket.socket, nodes: tuple[str, ...] = ()) -> None:
        self.nodes = nodes
        self.generation = 0
        self.interrupted: Interrupt | None = None
        self.reasons: dict[int, str] = {}
        self.leaving: Leave | None = None
        self.on_interrupt: Callable[[Interrupt], None] = lambda _: None
        self._pause = 0
        self._connection = connection
        self._sending = threading.Lock()
        self._orders: queue.SimpleQueue[LoadAlone | Form | Leave | None] = queue.SimpleQueue()
        self._closed = False
        self._reader = threading.Thread(target=self._read, name="control", daemon=True)
        self._reader.start()

    @property
    def paused(self) -> bool:
        """Whether the supervisor wants the current group to be left after the step."""
        return self._pause == self.generation > 0

    def is_over(self, generation: int) -> str:
        """Return why the group of this generation is over; an empty string if it is not."""
        last = self.interrupted
        return (last.why or "interrupted") if last and last.generation >= generation else ""

    def tell(self, message: News) -> None:
        """Send a message to the supervisor.

        Raises `SystemExit` if the supervisor has died.
        """
        try:
            with self._sending:
                self._connection.sendall(encode(message))
        except OSError as error:
            raise SystemExit(_TERMINATED) from error

    def wait(self, waiting: Waiting) -> LoadAlone | Form | Leave:
        """Tell the supervisor that this rank waits, and return its next order.

        Raises `SystemExit` if the supervisor has died.
        """
        self.tell(waiting)
        order = self._orders.get()
        if order is None:
            raise SystemExit(_TERMINATED)
        return order

    def end(self, outcome: str, step: int) -> None:
        """Tell the supervisor that training is over for this rank, and close the connection."""
        self.tell(RankEnded(outcome, step))
        self.close()

    def close(self) -> None:
        """Close the connection; the supervisor's end is no longer noticed."""
        self._closed = True
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._connection.close()

    def _read(self) -> None:
        """Take orders until the connection ends."""
        try:
            with self._connection.makefile("rb") as lines:
                for line in lines:
                    self._take(line)
        except (OSError, ProtocolError) as error:
            if not self._closed:
                print(f"hearth: lost the supervisor of this node: {error}", flush=True)
        self._orders.put(None)
        if not self._closed:
            # Whatever this rank does, in Python or not, it must not outlive its supervisor.
            os.kill(os.getpid(), signal.SIGTERM)

    def _take(self, line: bytes) -> None:
        """Act on an order, or queue it for `wait`.

        Raises `ProtocolError` if the line is no order.
        """
        match decode(line):
            case Interrupt() as order:
                self.reasons[order.generation] = order.why
                self._interrupt(order)
            case Pause(generation):
                self._pause = generation
            case LoadAlone() as order:
                self._orders.put(order)
            case Form() as order:
                self._interrupt(Interrupt(order.generation - 1, "a newer group is formed"))
                self._orders.put(order)
            case Leave() as order:
                self.leaving = order
                self._orders.put(order)
            case message:
                raise ProtocolError(f"{type(message).__name__} is no order")

    def _interrupt(self, order: Interrupt) -> None:
        """Keep an interrupt, and act on it if it is of the current group."""
        if self.interrupted is None or order.generation > self.interrupted.generation:
            self.interrupted = order
        if order.generation >= self.generation:
            self.on_interrupt(order)


IMPORTING = 900.0
"""Seconds to import the libraries, from a slow disk."""

PREPARING = 3600.0
"""Seconds to load model and data, and to measure the speed."""

FIRST_USE = 600.0
"""Seconds of the first use of the device."""

_WAITING = 20.0
"""Seconds until a rank that waits for others says so again, or hangs."""

_BEAT = 5.0
"""Seconds between two signs of life."""


class SupervisorWatch:
    """The connection of a rank to a supervisor that only watches it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def tell(self, message: News) -> None:
        """Send a message to the supervisor."""
        with suppress(OSError), self._sending:
            self._connection.sendall(encode(message))

    def is_over(self, generation: int) -> str:
        """Return '': no supervisor ends a group by this connection."""
        return ""


def connect(environment: Mapping[str, str] = os.environ) -> Control | SupervisorWatch | None:
    """Connect to this node's supervisor, if it gives orders or watches; None if the rank has none.

    Raises `LaunchError` if it does not answer.
    """
    supervisor: Control | SupervisorWatch
    if CONTROL in environment:
        nodes = _node_of_each_rank(environment)
        supervisor = Control(connection_here(), nodes)
    elif WATCHED in environment:
        supervisor = SupervisorWatch(connection_here())
    else:
        return None
    supervisor.tell(Here(int(environment["LOCAL_RANK"]), os.getpid()))
    return supervisor


class Starting:
    """Reports to the supervisor, until a rank is in a group, its work and that it lives."""

    def __init__(self, supervisor: Control | SupervisorWatch | None) -> None:
        self._supervisor = supervisor
        self._over, self._waits = threading.Event(), False
        self._telling = threading.Lock()
        if supervisor:
            threading.Thread(target=self._beat, name="start", daemon=True).start()

    def begin(self, what: str, seconds: float) -> None:
        """Begin a piece of work that may take `seconds`."""
        if self._supervisor:
            self._supervisor.tell(Doing(what, 0, 0, seconds))

    def wait_for_others(self) -> None:
        """Begin to wait for the other ranks, which may take as long as they start."""
        self._waits = True
        self.begin(FOR_OTHERS, _WAITING)

    def end(self) -> None:
        """Tell nothing more: what follows has words of its own."""
        with self._telling:
            self._over.set()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT):
            with self._telling:
                if self._supervisor is None or self._over.is_set():
                    return
                if self._waits:
                    self._supervisor.tell(Doing(FOR_OTHERS, 0, 0, _WAITING))
                else:
                    self._supervisor.tell(Alive())


def exit_with(program: Callable[[], int]) -> NoReturn:
    """Call `program` and exit with the status that it returns; the status is 1 if it raises.

    A rank that refuses or fails is still in torch's group. Its threads abort a process whose Python
    has ended when they free a tensor, and destroying the group waits for collectives that a peer
    never joins. So such a process ends before Python does, after all other exit handlers.
    """
    status = 1

    def end() -> None:
        distributed = sys.modules.get("torch.distributed")
        if distributed and distributed.is_initialized():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    atexit.register(end)  # the handlers registered later are called before it
    status = program()
    sys.exit(status)
