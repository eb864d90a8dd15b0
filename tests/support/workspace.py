"""A node's workspace that a run has taken."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def under_way(workspace: Path, run: str, text: str | None = None) -> Iterator[None]:
    """Hold the workspace as the supervisor of a run does; `text` is what its lock says instead."""
    lock = workspace / "config" / "supervisor.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps({"run": run, "pid": 7}) if text is None else text)
        file.flush()
        yield
