"""Send files of a run from this node to the controller, as a tar archive on standard output.

The controller sends this file to the node's Python. It imports only the standard library and runs
on Python 3.9: the run's own environment may be gone.
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

NOT_SENT = "hearth: not brought: "
"""Prefix of a line of standard error about a file that was left out."""

ANNOUNCEMENT = ".hearth-announced"
"""Name of the first file of an archive, which has the number of the others and of their bytes."""


def send(request: dict[str, Any], out: BinaryIO) -> None:
    """Write an archive of `files` to `out`: files or folders of the `workspace`, by name there.

    A run may still be writing: a file that vanishes meanwhile is left out, and of one that grows
    the beginning is sent. One that cannot be read is left out and named on standard error.
    """
    workspace = os.path.expanduser(request["workspace"])
    with tarfile.open(
        fileobj=out, mode="w|", format=tarfile.GNU_FORMAT, dereference=True, encoding="utf-8"
    ) as archive:
        files = [
            (place, name + place[len(top) :], size)
            for name, path in request["files"].items()
            for top in [os.path.join(workspace, path)]
            for place in _below(top)
            if (size := _size(place)) is not None
        ]
        _announce(archive, [size for _, _, size in files])
        for place, name, size in files:
            _add(archive, place, name, size)


def _below(path: str) -> Iterator[str]:
    """Yield a path and, if it is a folder, the paths of all files below it."""
    yield path
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)


def _size(path: str) -> int | None:
    """Return the size of a regular file; None of anything else: links and pipes are left out."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _announce(archive: tarfile.TarFile, sizes: list[int]) -> None:
    """Begin the archive with what follows, so that the reader can refuse it, and more than it."""
    content = json.dumps({"files": len(sizes), "bytes": sum(sizes)}).encode()
    info = tarfile.TarInfo(ANNOUNCEMENT)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def _add(archive: tarfile.TarFile, place: str, name: str, size: int) -> None:
    """Add the first `size` bytes of a regular file to the archive."""
    try:
        file = open(place, "rb")  # noqa: SIM115 (closed below)
    except FileNotFoundError:
        return
    except OSError as error:
        print(f"{NOT_SENT}{name}: {error.strerror}", file=sys.stderr)
        return
    with file:
        info = archive.gettarinfo(arcname=name, fileobj=file)
        info.size = min(info.size, size)
        archive.addfile(info, file)


if __name__ == "__main__":
    send(json.loads(sys.stdin.readline()), sys.stdout.buffer)
