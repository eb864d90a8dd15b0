"""Locks between the processes of one machine; the kernel releases them when their holder ends.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
