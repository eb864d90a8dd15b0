"""Checks of a run's folders on this node, before anything is written. Imports no torch."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from hearth.base.errors import HearthError

LEAST_FREE_BYTES = 1 << 30
"""Enough for the checkpoints, metrics and adapter of a LoRA run, with a wide margin."""

_CREATED = re.compile(r"^created: ['\"]?([^'\"\n]+)", re.MULTILINE)


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


def created_in(run_file: Path) -> str:
    """Return the time at which the run in a run file was made, '' if that is not known.

    The file may be that of a person's script, which `read_run` does not know.
    """
    try:
        found = _CREATED.search(run_file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def another_run(folder: Path, created: str, in_workspace: bool) -> list[str]:
    """Return a finding if `folder` holds a run made at another time than `created`.

    Results, checkpoints and code of the two would mix. A run whose run file is damaged is another.
    """
    there = folder / "run.yml"
    made = created_in(there)
    if not there.exists() or not created or made == created:
        return []
    remove = (
        f"remove it with `hearth runs --delete {folder.name}`"
        if in_workspace
        else "delete that folder and its checkpoints"
    )
    return [
        f"run: another run '{folder.name}' lies in {folder}, made "
        f"{made or 'nobody knows when'}; choose another name, or {remove}"
    ]
