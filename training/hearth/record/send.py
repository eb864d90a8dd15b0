"""Send files of a run from this node to the controller, as a tar archive on standard output.

The controller sends this file to the node's Python. It imports only the standard library and runs
on Python 3.9: the run's own environment may be gone.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

NOT_SENT = "hearth: not brought: "
"""Prefix of a line of standard error about a file that was left out."""


def send(request: dict[str, Any], out: BinaryIO) -> None:
    """Write an archive of `files` to `out`: files or folders of the `workspace`, by name there.

    A run may still be writing: a file that vanishes meanwhile is left out. One that cannot be read
    is left out and named on standard error.
    """
    workspace = os.path.expanduser(request["workspace"])
    with tarfile.open(
        fileobj=out, mode="w|", format=tarfile.GNU_FORMAT, dereference=True, encoding="utf-8"
    ) as archive:
        for name, path in request["files"].items():
            top = os.path.join(workspace, path)
            for place in _below(top):
                _add(archive, place, name + place[len(top) :])


def _below(path: str) -> Iterator[str]:
    """Yield a path and, if it is a folder, the paths of all files below it."""
    yield path
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, name) for name in names)


def _add(archive: tarfile.TarFile, place: str, name: str) -> None:
    """Add a regular file to the archive; links and pipes are left out."""
    try:
        if not stat.S_ISREG(os.lstat(place).st_mode):
            return
        file = open(place, "rb")  # noqa: SIM115 (closed below)
    except FileNotFoundError:
        return
    except OSError as error:
        print(f"{NOT_SENT}{name}: {error.strerror}", file=sys.stderr)
        return
    with file:
        archive.addfile(archive.gettarinfo(arcname=name, fileobj=file), file)


if __name__ == "__main__":
    send(json.loads(sys.stdin.readline()), sys.stdout.buffer)
