"""Locks between processes, held until their holder ends, and the runs that hold one as they wait.

Standard library only but for `locked`: modules ship this file to machines without Hearth.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .places import QUEUE

NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of a file system that locks no files, such as NFS whose server runs no lock daemon."""

_AGAIN = 0.02


@contextmanager
def held(path: Path, patience: float) -> Iterator[bool]:
    """Hold the lock file `path` for the block, after `patience` seconds at most; yield whether.

    Readers that ask `is_held` have it for an instant.
    """
    until = time.monotonic() + patience
    lock = _Lock(path, os.O_RDWR | os.O_CREAT)
    try:
        while not (ours := lock.take(fcntl.LOCK_EX)) and time.monotonic() < until:
            time.sleep(_AGAIN)
        yield ours
    finally:
        lock.close()


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock file `path`."""
    try:
        lock = _Lock(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not lock.take(fcntl.LOCK_SH)
    finally:
        lock.close()


def folder_of(path: Path) -> Path:
    """Return the folder that is locked instead of `path` where files cannot be.

    The kernel locks folders for its own machine alone, also those of NFS.
    """
    return path.with_name(f".{path.name}.held")


class _Lock:
    """An open lock file, or the folder in its place."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path = path
        self._descriptor = os.open(path, flags, 0o644)

    def take(self, kind: int) -> bool:
        """Try to lock; return whether that succeeded."""
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            folder_of(self._path).mkdir(exist_ok=True)
            self.close()
            self._descriptor = os.open(folder_of(self._path), os.O_RDONLY)
            return self.take(kind)
        return True

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


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
    from filelock import FileLock, SoftFileLease, Timeout

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


def is_in_queue(workspace: str | Path, run: str) -> bool:
    """Return whether the supervisor of a run lives here that waits for its turn."""
    return is_held(Path(workspace, QUEUE, f"{run}.lock"))


def queued_runs(workspace: str | Path) -> list[str]:
    """Return the names of the runs whose supervisors wait for their turn here, sorted."""
    names = sorted(path.stem for path in Path(workspace, QUEUE).glob("*.lock"))
    return [name for name in names if is_in_queue(workspace, name)]
