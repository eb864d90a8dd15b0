"""A folder of this node held to checksums, and put in place whole from an archive."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable

_PIECE = 1 << 20


def checksum(path: str) -> str:
    """Return the SHA-256 of a file, however big it is, as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def files_below(folder: str, let_be: Iterable[str] = ()) -> list[str]:
    """Return the files below a folder by their relative paths; none if it is not there.

    What lies in folders of the names `let_be`, anywhere, is left out.
    """
    let_be = set(let_be)
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in let_be]
        found += [os.path.relpath(os.path.join(place, name), folder) for name in files]
    return found


def unpack(archive: str, folder: str) -> None:
    """Put the content of a tar archive into a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        # Debian 12's own Python, 3.11.2, has no filters yet; the archive is the controller's.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(folder, **safe)


def take_place(fresh: str, folder: str, temporary: str) -> None:
    """Put the folder `fresh` in place of `folder`, by one rename each way.

    So no one ever sees half of it. What was there goes to the folder `temporary`.
    """
    if os.path.isdir(folder):
        shutil.move(folder, os.path.join(temporary, os.path.basename(folder)))
    os.rename(fresh, folder)
