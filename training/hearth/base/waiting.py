"""The runs that wait for their turn on a node, known by the locks that their supervisors hold.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

from pathlib import Path

# Ansible ships these files under a package of its own.
from .held import is_held
from .places import QUEUE


def is_in_queue(workspace: str | Path, run: str) -> bool:
    """Return whether the supervisor of a run lives here that waits for its turn."""
    return is_held(Path(workspace, QUEUE, f"{run}.lock"))


def queued_runs(workspace: str | Path) -> list[str]:
    """Return the names of the runs whose supervisors wait for their turn here, sorted."""
    names = sorted(path.stem for path in Path(workspace, QUEUE).glob("*.lock"))
    return [name for name in names if is_in_queue(workspace, name)]
