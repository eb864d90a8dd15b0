"""Checksum a folder's files, and replace a folder atomically from an archive."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable, Mapping

_PIECE = 1 << 20
_SHOWN = 3


def checksum(path: str) -> str:
    """Return the SHA-256 of a file of any size, as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()


def mode_of(path: str) -> int:
    """Return the mode of a file for a person: 0755 for a program of the shell, else 0644."""
    return 0o755 if path.endswith(".sh") else 0o644


def has_mode(path: str) -> bool:
    """Return whether a file exists with the mode that `mode_of` gives it."""
    return os.path.isfile(path) and os.stat(path).st_mode & 0o777 == mode_of(path)


def files_below(folder: str, let_be: Iterable[str] = ()) -> list[str]:
    """Return the relative paths of the files below a folder; empty if it does not exist.

    Folders whose name is in `let_be` are skipped at any depth.
    """
    let_be = set(let_be)
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in let_be]
        found += [os.path.relpath(os.path.join(place, name), folder) for name in files]
    return found


def differing(
    folder: str, files: Mapping[str, str], keep: bool = False, let_be: Iterable[str] = ()
) -> list[str]:
    """Return the files that differ from these checksums, are missing or, unless `keep`, surplus."""
    here = set(files_below(folder, let_be))
    wrong = {
        name
        for name, wanted in files.items()
        if name not in here or checksum(os.path.join(folder, name)) != wanted
    }
    return sorted(wrong if keep else wrong | (here - files.keys()))


def unpack(archive: str, folder: str) -> None:
    """Extract a tar archive into a folder, deleting the folder first."""
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        # Debian 12's Python 3.11.2 has no filters yet; the archive comes from the controller.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(folder, **safe)


def take_place(fresh: str, folder: str, temporary: str) -> None:
    """Replace `folder` by the folder `fresh`, by one rename each way.

    So no reader ever sees half of it. The old folder is moved into `temporary`.
    """
    if os.path.isdir(folder):
        shutil.move(folder, os.path.join(temporary, os.path.basename(folder)))
    os.rename(fresh, folder)


def named(names: list[str]) -> str:
    """Return the first few names, and the number of the others."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
