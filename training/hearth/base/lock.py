"""A file lock between processes of this machine that prints a message when it has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def locked(path: Path, say: Callable[[str], None], waiting: str) -> Iterator[None]:
    """Hold the lock `path`; if another process holds it, `say` the text `waiting` and wait.

    The lock is released when its process ends, even by a crash; the file stays.
    """
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say(waiting)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
