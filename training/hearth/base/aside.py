"""Processes that a supervisor starts beside its ranks, so that clearing ranks away spares them.

The ranks of a killed torchrun become children of the supervisor, which therefore ends and reaps
every descendant that it has not started aside.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from hearth.base.places import OF_HEARTH, TOKENS

_lock = threading.Lock()
_pids: set[int] = set()


def start_aside(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process as `subprocess.Popen` does; when it has been waited for, `forget` it."""
    with _lock:  # no reader sees the process before its id is noted
        process = subprocess.Popen(words, **options)
        _pids.add(process.pid)
    return process


def environment_aside(*more: str) -> dict[str, str]:
    """Return this process's environment without a person's tokens and a launch's variables.

    Nor has it those whose names begin with one of `more`.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in TOKENS and not name.startswith((*OF_HEARTH, *more))
    }


def forget(process: subprocess.Popen[bytes]) -> None:
    """Remove a process that has been waited for, whose id another may get."""
    with _lock:
        _pids.discard(process.pid)


def pids_aside() -> frozenset[int]:
    """Return the ids of the processes aside. List processes first, then call this."""
    with _lock:
        return frozenset(_pids)
