"""One process at a time, on this machine: a file lock that says when it has to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def locked(path: Path, say: Callable[[str], None], waiting: str) -> Iterator[None]:
    """Hold the lock `path`, saying `waiting` first if another process has it.

    The lock ends with its process, however that ends; the file stays.
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
