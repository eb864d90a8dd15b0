"""The socket of a supervisor for its node's ranks: their messages become events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError
from hearth.ranks.control_protocol import (
    SOCKET,
    Here,
    News,
    Order,
    ProtocolError,
    decode,
    encode,
    listen_for_ranks,
)


@dataclass(frozen=True)
class Said:
    """A rank of this node, of this start of the ranks, said something."""

    start: int
    local_rank: int
    message: News


@dataclass(frozen=True)
class Left:
    """A rank of this node, of this start of the ranks, closed its connection: it ended."""

    start: int
    local_rank: int


class Channel:
    """Accepts this node's `count` ranks, and puts their messages into a queue.

    `say` takes lines for the log.
    """

    def __init__(
        self, folder: Path, count: int, events: asyncio.Queue[Any], say: Callable[[str], None]
    ) -> None:
        self._folder, self._count = folder, count
        self._events = events
        self._say = say
        self._start = 0
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start to listen in the results folder.

        Raises:
            LaunchError: it takes no socket.
        """
        try:
            listener = listen_for_ranks(self._folder)
        except OSError as error:
            raise LaunchError(
                f"{self._folder / SOCKET}: the socket of this node's ranks cannot be made "
                f"({error.strerror}): free some space there, make the folder writable, or set a "
                "workspace on a Linux file system in the inventory"
            ) from error
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    def tell(self, order: Order) -> None:
        """Give an order to all connected ranks."""
        for writer in self._writers.values():
            writer.write(encode(order))

    def expect(self, start: int) -> None:
        """Wait for the ranks of this start; the connected ones are ended and no longer heard."""
        self._start = start
        writers, self._writers = self._writers, {}
        for writer in writers.values():
            writer.transport.abort()

    def close(self) -> None:
        """Stop to listen, and remove the socket."""
        self.expect(0)
        if self._server:
            self._server.close()
            (self._folder / SOCKET).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        local_rank, start = None, self._start
        try:
            here = decode(await reader.readline())
            if not isinstance(here, Here) or not 0 <= here.local_rank < self._count:
                raise ProtocolError(f"a rank of this node begins with Here, not {here}")
            local_rank = here.local_rank
            self._writers[local_rank] = writer
            self._events.put_nowait(Said(start, local_rank, here))
            while line := await reader.readline():
                message = decode(line)
                if not isinstance(message, News):
                    raise ProtocolError(f"a rank does not say {type(message).__name__}")
                if self._writers.get(local_rank) is not writer:
                    break
                self._events.put_nowait(Said(start, local_rank, message))
        except (ProtocolError, ValueError) as error:  # ValueError: a line without an end
            self._say(f"a rank of this node is no longer heard: {error}")
        except OSError:
            pass  # its end is told below
        finally:
            if local_rank is not None and self._writers.get(local_rank) is writer:
                del self._writers[local_rank]
                self._events.put_nowait(Left(start, local_rank))
            writer.transport.abort()
