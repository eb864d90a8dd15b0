"""A stand-in for the supervisors: gives orders to real ranks, and keeps their messages.

Every node has a folder of its own, where its ranks run and the conductor listens. All nodes are
on this machine. Ranks are forked from a process that has imported what they need.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from hearth.ranks.control_protocol import (
    CONTROL,
    LAYOUT,
    Form,
    Here,
    Interrupt,
    News,
    Order,
    Pause,
    decode,
    encode,
    layout_text,
    listen_for_ranks,
    node_of_each_rank,
)
from support.ranks import IMPORTS, environment
from support.supervisors import free_port
from support.waiting import HANG, until

ADDRESS = "127.0.0.1"

_News = TypeVar("_News", bound=News)

# Reads a line of JSON for each rank, forks it and writes its id, and later its exit status.
_NURSERY = """
import select

def rank(job):
    os.setsid()
    os.chdir(job["cwd"])
    out = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, stream in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(source, stream)
    os.close(out), os.close(nothing)
    os.environ.clear()
    os.environ.update(job["environment"])
    sys.argv = [job["script"], *job["arguments"]]
    runpy.run_path(job["script"], run_name="__main__")

def say(**words):
    print(json.dumps(words), flush=True)

lines = os.fdopen(0, "rb", buffering=0, closefd=False)
open_ = True
children = {}
while open_ or children:
    if open_ and select.select([0], [], [], 0.02)[0]:
        line = lines.readline()
        open_ = bool(line)
        if line:
            job = json.loads(line)
            child = os.fork()
            if child == 0:
                rank(job)
                sys.exit()
            children[child] = True
            say(started=child)
    for child in list(children):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            del children[child]
            say(ended=pid, status=os.waitstatus_to_exitcode(status))
    if not open_:
        break
"""


class _Nursery:
    """The process that ranks are forked from, for all conductors; it ends with this one."""

    def __init__(self, imports: tuple[str, ...], variables: tuple[tuple[str, str], ...]) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="hearth-nursery-"))
        self._process = subprocess.Popen(
            [sys.executable, "-c", IMPORTS + _NURSERY, *imports],
            cwd=self._home,
            env=environment(self._home) | dict(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._sending = threading.Lock()
        self._starting: deque[tuple[Callable[[int], None], Callable[[int], None]]] = deque()
        atexit.register(self._end)
        threading.Thread(target=self._hear, daemon=True).start()

    def fork(
        self, job: dict[str, Any], started: Callable[[int], None], ended: Callable[[int], None]
    ) -> None:
        """Fork a rank; `started` is called with its id, `ended` with its exit status."""
        with self._sending:
            self._starting.append((started, ended))
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()

    def _hear(self) -> None:
        ends = {}
        for line in self._process.stdout:
            told = json.loads(line)
            if "started" in told:
                started, ends[told["started"]] = self._starting.popleft()
                started(told["started"])
            else:
                ends.pop(told["ended"])(told["status"])

    def _end(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        shutil.rmtree(self._home)


_nursery = functools.cache(_Nursery)


@dataclass(frozen=True)
class Said:
    """A message of a rank, and when it came (seconds of `time.monotonic`)."""

    rank: int
    message: News
    at: float


class Conductor:
    """Starts the ranks of nodes, reads their messages, and gives them orders.

    Args:
        folder: gets a folder for each node, its ranks' working directory.
        layout: every node with its number of ranks, in rank order.
        script: the program of each rank; text or a file.
        arguments: of the script.
        imports: modules to import once, before ranks are forked.
        imported_with: variables of the environment of those imports.
        variables: of every rank's environment, besides those of a supervisor.

    Attributes:
        said: all messages of ranks so far.
        statuses: exit status of each rank that has ended (negative: the signal that ended it).
        pids: process of each rank that runs or has run last.
    """

    def __init__(
        self,
        folder: Path,
        layout: dict[str, int],
        script: str | Path,
        *arguments: object,
        imports: Iterable[str] = ("hearth.ranks.world",),
        imported_with: tuple[tuple[str, str], ...] = (),
        **variables: str,
    ) -> None:
        self.layout = tuple(layout.items())
        self.nodes = tuple(layout)
        self.folder = folder
        self.said: list[Said] = []
        self.statuses: dict[int, int] = {}
        self.pids: dict[int, int] = {}
        self.generation = 0
        self._news = threading.Condition()
        self._connections: dict[int, socket.socket] = {}
        self._listeners: list[socket.socket] = []
        self._closed = False
        self._arguments = [str(argument) for argument in arguments]
        self._variables = variables
        if isinstance(script, str):
            self._script = folder / "rank.py"
            self._script.write_text(script)
        else:
            self._script = script
        for node in self.nodes:
            self.place(node).mkdir(parents=True, exist_ok=True)
            listener = listen_for_ranks(self.place(node))
            self._listeners.append(listener)
            self._thread(self._accept, node, listener)
        self._nursery = _nursery(tuple(imports), imported_with)

    def __enter__(self) -> Conductor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error:
            for rank in range(len(node_of_each_rank(self.layout))):
                print(f"--- rank {rank}: {self.log(rank)}")
        self.close()

    def place(self, node: str) -> Path:
        """Return the working directory of a node's ranks."""
        return self.folder / node

    def ranks(self, *nodes: str) -> tuple[int, ...]:
        """Return the stable ranks of these nodes; of all without any."""
        wanted = nodes or self.nodes
        each = enumerate(node_of_each_rank(self.layout))
        return tuple(rank for rank, node in each if node in wanted)

    def start(self, *nodes: str) -> None:
        """Start the ranks of these nodes, or of all, and wait until each has said `Here`."""
        since = len(self.said)
        for rank in (ranks := self.ranks(*nodes)):
            node = node_of_each_rank(self.layout)[rank]
            local_rank = rank - self.ranks(node)[0]
            count = str(dict(self.layout)[node])
            job = {
                "cwd": str(self.place(node)),
                "script": str(self._script),
                "arguments": self._arguments,
                "log": str(self._log(rank)),
                "environment": environment(self.folder)
                | {
                    CONTROL: "1",
                    LAYOUT: layout_text(self.layout),
                    "HEARTH_NODE": node,
                    "HEARTH_GENERATION": str(self.generation),
                    # as torchrun sets them for the ranks of one node
                    "RANK": str(local_rank),
                    "WORLD_SIZE": count,
                    "LOCAL_RANK": str(local_rank),
                    "LOCAL_WORLD_SIZE": count,
                    "MASTER_ADDR": ADDRESS,
                    "MASTER_PORT": "1",
                }
                | self._variables,
            }
            with self._news:
                self.statuses.pop(rank, None)
            self._nursery.fork(
                job, functools.partial(self._started, rank), functools.partial(self._ended, rank)
            )
        self.hear(Here, *ranks, since=since)
        with self._news:  # the nursery says so on its own way
            assert self._news.wait_for(lambda: {*ranks} <= self._running(), HANG)

    def order(self, order: Order, *ranks: int) -> None:
        """Give an order to these ranks, or to all that are connected."""
        for rank in ranks or list(self._connections):
            self._connections[rank].sendall(encode(order))

    def form(self, *nodes: str, fresh: bool = False, to: tuple[int, ...] | None = None) -> Form:
        """Order the ranks of these nodes, or of all, to form a group; return the order.

        `to`: give it to these ranks only.
        """
        self.generation += 1
        nodes = nodes or self.nodes
        order = Form(self.generation, nodes, ADDRESS, free_port(), (ADDRESS,), fresh, key="key")
        self.order(order, *(self.ranks(*nodes) if to is None else to))
        return order

    def interrupt(self, *ranks: int, why: str = "a node was lost") -> None:
        """Interrupt the newest group at these ranks, or at all."""
        self.order(Interrupt(self.generation, why), *ranks)

    def pause(self, *ranks: int) -> None:
        """Have these ranks, or all, leave the newest group after their step."""
        self.order(Pause(self.generation), *ranks)

    def hear(
        self,
        kind: type[_News],
        *ranks: int,
        since: int = 0,
        where: Callable[[_News], bool] = lambda _: True,
        seconds: float = HANG,
    ) -> list[Said]:
        """Wait until each of these ranks has said a message of a kind; return the first of each.

        Args:
            kind: type of the message.
            ranks: all ranks of the layout without any.
            since: leave out messages before this index of `said`.
            where: a condition on the message.
            seconds: bound of the wait.

        Raises `AssertionError` if one does not, or ends before.
        """
        ranks = ranks or self.ranks()
        end = time.monotonic() + seconds
        with self._news:
            while True:
                found = [self._first(kind, rank, since, where) for rank in ranks]
                if all(found):
                    return found
                gone = [r for r, at in zip(ranks, found, strict=True) if not at and self._gone(r)]
                assert not gone, f"rank {gone} ended: {[self.log(rank) for rank in gone]}"
                assert time.monotonic() < end, f"no {kind.__name__} of all of {ranks}: {self.said}"
                self._news.wait(0.2)

    def _first(self, kind: type, rank: int, since: int, where: Callable) -> Said | None:
        for said in self.said[since:]:
            if said.rank == rank and isinstance(said.message, kind) and where(said.message):
                return said
        return None

    def _running(self) -> set[int]:
        return {rank for rank in self.pids if rank not in self.statuses}

    def _gone(self, rank: int) -> bool:
        return rank in self.statuses and rank not in self._connections

    def kill(self, *ranks: int) -> float:
        """Kill ranks, and wait until they are gone; return when (seconds of `time.monotonic`)."""
        at = time.monotonic()
        for rank in ranks:
            os.kill(self.pids[rank], signal.SIGKILL)
        self.wait(*ranks)
        return at

    def stop(self, *ranks: int) -> None:
        """Stop ranks without ending them (SIGSTOP), and wait until they stand still."""
        for rank in ranks:
            os.kill(self.pids[rank], signal.SIGSTOP)
            status = Path(f"/proc/{self.pids[rank]}/stat")
            until(lambda status=status: status.read_text().rpartition(")")[2].split()[0] == "T")

    def wake(self, *ranks: int) -> None:
        """Let stopped ranks go on."""
        for rank in ranks:
            os.kill(self.pids[rank], signal.SIGCONT)

    def wait(self, *ranks: int, seconds: float = HANG) -> list[int]:
        """Wait until these ranks, or all, have ended; return their exit statuses."""
        ranks = ranks or self.ranks()
        with self._news:
            ended = self._news.wait_for(lambda: {*ranks} <= self.statuses.keys(), seconds)
            assert ended, f"of ranks {ranks} only these ended within {seconds} s: {self.statuses}"
            return [self.statuses[rank] for rank in ranks]

    def log(self, rank: int) -> str:
        """Return the output of a rank."""
        return self._log(rank).read_text() if self._log(rank).exists() else ""

    def disconnect(self, *nodes: str) -> None:
        """Be lost as the supervisor of these nodes, or of all: close the connections."""
        for rank in self.ranks(*nodes):
            if rank in self._connections:
                self._connections[rank].shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all ranks and all that this has opened."""
        self._closed = True
        for rank, pid in self.pids.items():
            if rank not in self.statuses:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        with suppress(AssertionError):
            self.wait(*self.pids, seconds=10)
        for each in (*self._listeners, *self._connections.values()):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _log(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.log"

    def _thread(self, act: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=act, args=arguments, daemon=True).start()

    def _started(self, rank: int, pid: int) -> None:
        with self._news:
            self.pids[rank] = pid
            self._news.notify_all()

    def _ended(self, rank: int, status: int) -> None:
        with self._news:
            self.statuses[rank] = status
            self._news.notify_all()

    def _accept(self, node: str, listener: socket.socket) -> None:
        while not self._closed:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self._thread(self._hear_rank, node, connection)

    def _hear_rank(self, node: str, connection: socket.socket) -> None:
        rank = -1
        with connection.makefile("rb") as lines, suppress(OSError):
            for line in lines:
                message = decode(line)
                with self._news:
                    if isinstance(message, Here):
                        rank = self.ranks(node)[message.local_rank]
                        self._connections[rank] = connection
                    self.said.append(Said(rank, message, time.monotonic()))
                    self._news.notify_all()
        with self._news:
            if self._connections.get(rank) is connection:
                del self._connections[rank]
            self._news.notify_all()
        connection.close()
