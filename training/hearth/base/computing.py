"""A limit on the time that a block of code computes, for code that others have written."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


@contextmanager
def computing_at_most(seconds: float, error: Exception) -> Iterator[None]:
    """Raise `error` within the block once it has computed for so many `seconds`.

    Time that the process waits does not count. Only the main thread can be interrupted so, and only
    between two steps of Python; in another thread there is no limit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> NoReturn:
        raise error

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
