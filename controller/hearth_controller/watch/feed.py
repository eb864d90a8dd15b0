"""The live data of a run: attach.yml played as a child, and the events of its followers."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hearth_controller.base.answer import Answer
from hearth_controller.watch.child import Checkout, play
from hearth_controller.watch.relay import VARIABLE
from hearth_controller.watch.view import RunView

_LONGEST = 1 << 24
"""Bytes of an event; a change holds at most 32 KiB of a file."""

_LAST = 10.0
"""Seconds in which what followers sent before the end of their play must be read."""

_TEMPORARY = "/tmp"
"""Where the socket is made: its path must be short, which that of TMPDIR need not be."""


class Feed:
    """Follows `run`, or the newest run if it is ''; calls `changed` after each event.

    Attributes:
        view: The run, as its events tell it.
        last_line: The last line that the play printed; it is silent while it follows.
        answer: The answer of the play, with the closing text of the run; None before its end.
    """

    def __init__(
        self, checkout: Checkout, run: str, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._checkout, self._run, self._changed = checkout, run, changed
        self.view = RunView()
        self.last_line = ""
        self.answer: Answer | None = None
        self._followers: set[asyncio.StreamWriter] = set()

    async def follow(self) -> None:
        """Follow the run to its end."""
        with tempfile.TemporaryDirectory(prefix="hearth-", dir=_TEMPORARY) as folder:
            address = str(Path(folder, "socket"))
            server = await asyncio.start_unix_server(self._serve, address, limit=_LONGEST)
            words = {"run": self._run} if self._run else {}
            try:
                environment = {VARIABLE: address}
                self.answer = await play(self._checkout, "attach", words, self._say, environment)
                await self._read_the_rest()
            finally:
                server.close()
                for follower in self._followers:
                    follower.transport.abort()
                self._changed()

    async def _read_the_rest(self) -> None:
        """Read the last messages after the play has ended: its end closes the connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST):
                await asyncio.sleep(0.1)  # accepts those that connected last
                while self._followers:
                    await asyncio.sleep(0.05)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take in the events of one follower."""
        node = ""
        self._followers.add(writer)
        with suppress(OSError):
            while line := await reader.readline():
                event = json.loads(line)
                node = event.get("node", node)
                self.view.add(node, event, time.monotonic())
                self._changed()
        self._followers.discard(writer)
        writer.transport.abort()

    def _say(self, line: str) -> None:
        """Keep a line of the play, such as the reason of a wait."""
        self.last_line = line.strip() or self.last_line
        self._changed()
