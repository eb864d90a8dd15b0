"""Programs that tests run, and stand-ins of programs: shell scripts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

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


def stand_in(path: Path, script: str) -> Path:
    """Write a shell script that can be called, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
