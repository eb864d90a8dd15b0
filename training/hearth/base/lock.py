"""A file lock between processes, also of several machines, that prints a message when it waits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from filelock import FileLock, SoftFileLease, Timeout

from hearth.base.held import NO_LOCKS

LEASE = 30.0
"""Seconds after which others take the lock of a machine that was lost; its holder renews it."""


@contextmanager
def locked(
    path: Path, say: Callable[[str], None], waiting: str, patience: float = math.inf
) -> Iterator[None]:
    """Hold the lock `path`; if another process holds it, `say` the text `waiting` and wait.

    The kernel's lock is released when its process ends, even by a crash; its file stays. Over NFS
    it may hold on one machine only, or be refused: hence also a lease, a file beside it.

    Raises `Timeout` after `patience` seconds.
    """
    until = time.monotonic() + patience
    lease = SoftFileLease(path.with_suffix(".lease.lock"), lease_duration=LEASE)
    with ExitStack() as held:
        for lock in (FileLock(path, fallback_to_soft=False), lease):
            try:
                held.enter_context(lock.acquire(timeout=0))
            except Timeout:
                say(waiting)
                left = until - time.monotonic()
                timeout = -1 if left == math.inf else max(left, 0)
                held.enter_context(lock.acquire(timeout=timeout))
            except OSError as error:
                if lock is lease or error.errno not in NO_LOCKS:
                    raise
        yield
