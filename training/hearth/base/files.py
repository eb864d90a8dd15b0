"""File helpers shared across packages: checksums, atomic writes, fsync, folder locks."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

DISK_FULL = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.ESTALE)
)
"""Numbers of the errors of a disk that is full, read-only or gone."""


def sha256_of(path: Path) -> str:
    """Return the checksum of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tail(path: Path, most: int, start: int = 0) -> str:
    """Return the last `most` bytes of a file as text, of those from the byte `start` on."""
    with path.open("rb") as file:
        file.seek(max(start, file.seek(0, os.SEEK_END) - most))
        return file.read().decode(errors="replace")


def open_regular(path: str | Path) -> IO[bytes]:
    """Open a regular file, or /dev/stdin, for reading, as bytes.

    Raises `OSError` also for another pipe or device: a reader could wait for ever.
    """
    if str(path) == "/dev/stdin":  # whoever started this process writes there
        return open(0, "rb", closefd=False)
    file = open(path, "rb", opener=_at_once)  # noqa: SIM115 (the caller closes it)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def _at_once(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def path_fault(text: str) -> str:
    """Return why a text cannot be a path, or ''."""
    try:
        path = os.path.expanduser(text)
        if path.startswith("~"):
            return f"there is no user {path.partition('/')[0].removeprefix('~')}"
        os.stat(path)
    except OSError as error:
        missing = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
        return "" if error.errno in missing else error.strerror or str(error)
    except ValueError as error:  # such as for a NUL
        return str(error)
    return ""


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object that a file holds; None if it cannot be read or is something else."""
    try:
        with open_regular(path) as file:
            content = json.loads(file.read())
    except (OSError, ValueError, RecursionError, MemoryError):
        return None
    return content if isinstance(content, dict) else None


def bytes_below(folder: Path) -> int:
    """Return the total size in bytes of all files below a folder, 0 if there is no folder.

    Other processes may be changing it: files that vanish meanwhile are not counted.
    """
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def sync(path: Path) -> None:
    """Fsync a file, or a folder's own entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path) -> None:
    """Fsync a folder and everything below it."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


@contextmanager
def replaced_folder(final: Path) -> Iterator[Path]:
    """Yield an empty folder beside `final`, then sync it to disk and put it in place of `final`.

    If the block fails, `final` stays and the folder is removed.
    """
    unfinished, before = (
        final.with_name(f".{final.name}.{word}") for word in ("unfinished", "old")
    )
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a process that was killed
    unfinished.mkdir(parents=True)
    _put_back(before, final)
    try:
        yield unfinished
        sync_below(unfinished)
        # Renamed, since a network disk does not remove files that are being read.
        if final.exists():
            final.rename(before)
        unfinished.rename(final)
    except BaseException:
        _put_back(before, final)
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    shutil.rmtree(before, ignore_errors=True)


def _put_back(before: Path, final: Path) -> None:
    """Restore a folder's name if it was not replaced; else remove its remains."""
    if before.exists() and not final.exists():
        before.rename(final)
    shutil.rmtree(before, ignore_errors=True)


def level_modes(folder: Path) -> None:
    """Give all files of a model the mode of config.json: safetensors creates private files."""
    mode = (folder / "config.json").stat().st_mode
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def write_whole(path: Path, text: str, synced: bool = False) -> None:
    """Write a file atomically: readers see the old content or the new one.

    With `synced`, the new content is on the disk when this returns.
    Raises `OSError` and keeps the old content if the disk is full or cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        if synced:
            sync(beside)
        beside.replace(path)
        if synced:
            sync(path.parent)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder` for the block, waiting for other processes first."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def taken(folder: Path) -> bool:
    """Return whether a process holds the `alone` lock on `folder`; its death releases it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
