"""Files of the controller packed for a node, and sent to it."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO


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


def send(action: Any, source: Path, files: Iterable[Path | str], scratch: str) -> str:
    """Send a tar of `files` to the node of an action plugin; return its path there.

    The folder there is temporary: Ansible removes it when the task ends. `scratch` is a folder of
    the controller, not on /tmp, which may be a tmpfs. Uncompressed: on a home network, compressing
    takes longer than sending.

    Raises:
        OSError: A file cannot be read, or `scratch` has no room.
    """
    folder = action._make_tmp_path()
    there = action._connection._shell.join_path(folder, "files.tar")
    with tempfile.NamedTemporaryFile(suffix=".tar", dir=scratch) as here:
        pack(source, files, here)
        here.flush()
        action._transfer_file(here.name, there)
    action._fixup_perms2((folder, there))
    return there
