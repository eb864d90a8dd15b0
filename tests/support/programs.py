"""Stand-ins of programs: shell scripts."""

from __future__ import annotations

from pathlib import Path


def stand_in(path: Path, script: str) -> Path:
    """Write a shell script that can be called, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
