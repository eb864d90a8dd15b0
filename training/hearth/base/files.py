"""What several rooms need to know of a file."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def sha256_of(path: Path) -> str:
    """Return the checksum of a file's content, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object that a file holds; None if it cannot be read or is something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def bytes_below(folder: Path) -> int:
    """Return the bytes of all files in a folder, which need not be there.

    Others may be at work in it: what vanishes meanwhile counts for nothing.
    """
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_below(folder: Path) -> None:
    """Bring a folder and all that is in it to the disk."""
    for path in [*folder.rglob("*"), folder]:
        sync(path)


def level_modes(folder: Path) -> None:
    """Let whoever may read a model's config.json read all of it: safetensors are made private."""
    for path in folder.iterdir():
        path.chmod((folder / "config.json").stat().st_mode)


def write_whole(path: Path, text: str) -> None:
    """Write a file that others see as it was or as it will be, never in between.

    Raises `OSError` and leaves the file as it was if the disk is full or cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is alone in `folder`, and be it until the block ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def taken(folder: Path) -> bool:
    """Return whether a process is `alone` in `folder`; one that was killed no longer is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
