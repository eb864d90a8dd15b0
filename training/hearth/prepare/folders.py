"""Checks of a run's folders on this node. Imports no torch."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hearth.base.errors import HearthError

LEAST_FREE_BYTES = 1 << 30
"""Enough for the checkpoints, metrics and adapter of a LoRA run, with a wide margin."""


def check_folder(folder: Path, least_free: int = LEAST_FREE_BYTES) -> None:
    """Raise if `folder` cannot be created or written, or has too little space.

    The test writes to the nearest existing parent, so that a refused run leaves nothing behind. (It
    really writes, since even root cannot write everywhere.)
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise HearthError(
            f"{folder} cannot be written ({error.strerror}); give this user the right to, or "
            "choose another folder"
        ) from error
    free = shutil.disk_usage(there).free
    if free < least_free:
        raise HearthError(
            f"{folder} has {free >> 20} MiB left on its disk; a run needs {least_free >> 20} MiB"
        )
