"""Files of the controller packed for a node."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO


def pack(source: Path, files: Iterable[Path | str], into: BinaryIO) -> None:
    """Write a tar of `files`, relative to `source`: the same bytes for the same contents.

    Raises:
        OSError: A file cannot be read, or `into` cannot be written.
    """
    with tarfile.open(fileobj=into, mode="w") as tar:
        for name in files:
            path = source / name
            with path.open("rb") as content:
                member = tarfile.TarInfo(Path(name).as_posix())
                member.size = os.fstat(content.fileno()).st_size
                member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
                tar.addfile(member, content)
