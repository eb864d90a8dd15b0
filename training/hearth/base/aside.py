"""Processes that a supervisor starts beside its ranks, so that clearing ranks away spares them.

The ranks of a killed torchrun become children of the supervisor, which therefore ends and reaps
every descendant that it has not started aside.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from typing import Any

_lock = threading.Lock()
_pids: set[int] = set()


def start_aside(words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process as `subprocess.Popen` does; when it has been waited for, `forget` it."""
    with _lock:  # no reader sees the process before its id is noted
        process = subprocess.Popen(words, **options)
        _pids.add(process.pid)
    return process


def forget(process: subprocess.Popen[bytes]) -> None:
    """Remove a process that has been waited for, whose id another may get."""
    with _lock:
        _pids.discard(process.pid)


def pids_aside() -> frozenset[int]:
    """Return the ids of the processes aside. List processes first, then call this."""
    with _lock:
        return frozenset(_pids)
