"""The start and the end of a rank: its messages before it is in a group, its exit status."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NoReturn

from hearth.ranks.control import Control, connection_here
from hearth.ranks.control_protocol import FOR_OTHERS, WATCHED, Alive, Doing, Here, News, encode

IMPORTING = 900.0
"""Seconds in which the libraries must be imported, from a slow disk."""

PREPARING = 3600.0
"""Seconds in which model and data must be ready, and the speed measured."""

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

    @classmethod
    def connect(cls, environment: Mapping[str, str] = os.environ) -> SupervisorWatch | None:
        """Connect to the supervisor that listens in this folder; None if the rank has none.

        Raises `LaunchError` if the supervisor does not answer.
        """
        if WATCHED not in environment:
            return None
        watch = cls(connection_here())
        watch.tell(Here(int(environment["LOCAL_RANK"]), os.getpid()))
        return watch

    def tell(self, message: News) -> None:
        """Send a message to the supervisor."""
        with suppress(OSError), self._sending:
            self._connection.sendall(encode(message))

    def is_over(self, generation: int) -> str:
        """Return '': no supervisor ends a group by this connection."""
        return ""


def connect(environment: Mapping[str, str] = os.environ) -> Control | SupervisorWatch | None:
    """Connect to this node's supervisor, if it gives orders or watches.

    Raises `LaunchError` if it does not answer.
    """
    return Control.connect(environment) or SupervisorWatch.connect(environment)


class Starting:
    """Tells the supervisor what a rank does until it is in a group, and that its process lives."""

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
