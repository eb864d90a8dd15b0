"""The life of a server: it runs in a thread, so that a signal ends it whatever it is at."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from hearth.base.text import brief

_GRACE = 5.0
"""Seconds for answers under way, once the server is asked to end."""


def serve_until_asked(run: Callable[[], None], stop: Callable[[], None]) -> tuple[int, str]:
    """Run a server until it ends by itself, or SIGTERM or SIGINT arrives.

    `stop` asks it to end. Returns the exit status and the reason for a person. Threads of the
    server may still compute then, for which an ordinary exit would wait.
    """
    asked: list[int] = []
    failed: list[BaseException] = []
    over = threading.Event()

    def note(number: int, _: Any) -> None:
        if asked:
            os._exit(128 + number)
        asked.append(number)
        over.set()

    def serve() -> None:
        try:
            run()
        except BaseException as error:  # `SystemExit` too, which a thread would swallow
            failed.append(error)
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    over.wait()
    stop()
    thread.join(_GRACE)
    if asked:
        return 0, f"{signal.Signals(asked[0]).name} arrived"
    return 1, brief(failed[0]) if failed else "the server stopped"
