"""The repository itself: its root and its tracked files."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def tracked(pattern: str) -> list[Path]:
    """Return the tracked files that match; without git, those outside hidden folders."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", pattern]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        paths = [ROOT / name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        below = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
        seen = (path for path in below if not any(part.startswith(".") for part in path.parts))
        paths = [ROOT / path for path in seen if path.match(pattern) or pattern in path.parts]
    return [path for path in paths if path.is_file()]
