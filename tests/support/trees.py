"""Folders as they lie on disk, to compare before and after."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def tree(folder: Path) -> dict[str, tuple]:
    """Return everything below a folder: kind and mode, owner, group, content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held = os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        found[str(path)] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, held)
    return found
