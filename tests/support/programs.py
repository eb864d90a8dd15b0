"""Programs that tests run, and stand-ins of programs: shell scripts."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil

from support.waiting import HANG


def run(
    *words: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with these variables besides its own, and return how it ended."""
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def at_work_in(*workspaces: Path) -> list[psutil.Process]:
    """Return the living processes whose HEARTH_WORKSPACE is one of these, wherever they went."""
    places, found = [str(workspace) for workspace in workspaces], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get("HEARTH_WORKSPACE") in places:
                found.append(process)
    return found


def stand_in(path: Path, script: str) -> Path:
    """Write a shell script that can be called, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
