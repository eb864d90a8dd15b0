"""The owner's word on this node: whether the run may have the machine now."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from hearth.base.clock import local_time
from hearth.lend.lender import Lender
from hearth.lend.sensors import Sensors
from hearth.lend.terms import Terms
from hearth.supervisor.decisions.events import OwnerSays

ASK_EVERY = 1.0
"""Seconds between two questions whether the owner wants the machine."""

FIRST_WORD = 15.0
"""Seconds that the first start of the ranks waits for an answer: a command may be slow."""

AGAIN = 10.0
"""Seconds after a failure until it is asked again."""

Ask = Callable[[], str]
Make = Callable[[], AbstractContextManager[Ask]]


class Availability:
    """Asks again and again whether the owner wants the machine, in a thread of its own.

    The thread enters what `make` returns, and calls what that yields every second. These may take
    their time, and even hang: the supervisor does not wait for them. If one fails, `say` gets the
    error, the last answer stands, and all begins anew. Each change of the answer, and the first
    one, goes into the queue `events` of the running event loop.

    Attributes:
        says: the last answer.
    """

    def __init__(self, make: Make, events: asyncio.Queue[Any], say: Callable[[str], None]) -> None:
        self.says = ""
        self._make, self._events, self._say = make, events, say
        self._loop = asyncio.get_running_loop()
        self._answered = asyncio.Event()
        self._closed = threading.Event()
        # A daemon: a driver that hangs in it must not keep the supervisor from its end.
        threading.Thread(target=self._watch, name="owner", daemon=True).start()

    async def first(self, seconds: float) -> None:
        """Wait for the first answer, for at most `seconds`."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), seconds)

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()

    def _watch(self) -> None:
        last: str | None = None
        failure = ""
        while not self._closed.is_set():
            try:
                with self._make() as ask:
                    while not self._closed.is_set():
                        began = time.monotonic()
                        why = ask()
                        failure = ""
                        if why != last:
                            last = why
                            self._call(self._tell, why)
                        self._closed.wait(max(0.1, ASK_EVERY - (time.monotonic() - began)))
            except Exception as error:  # whatever it is, the run goes on with this node's last word
                if repr(error) != failure:
                    failure = repr(error)
                    self._call(self._fail, failure)
                self._closed.wait(AGAIN)

    def _call(self, act: Callable[[str], None], words: str) -> None:
        with suppress(RuntimeError):  # the loop is closed: this supervisor ends
            self._loop.call_soon_threadsafe(act, words)

    def _fail(self, error: str) -> None:
        self._say(f"it is not known whether the owner wants this machine: {error}; asking again")
        self._answered.set()

    def _tell(self, why: str) -> None:
        self.says = why
        self._answered.set()
        self._events.put_nowait(OwnerSays(why))


@contextmanager
def asking(terms: Mapping[str, Any], workspace: Path) -> Iterator[Ask]:
    """Yield a function that says why the owner wants this machine now, "" if it does not."""
    given = Terms.of(terms)
    lender = Lender(given)
    with closing(Sensors(given, workspace)) as sensors:
        yield lambda: lender.decide(time.monotonic(), local_time(), sensors.read())
