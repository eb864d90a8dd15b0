"""Action plugin: fetch a run's files from a node to the controller."""

from __future__ import annotations

import filecmp
import os
import shlex
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.paths import for_shell
from hearth.base.files import alone

DOCUMENTATION = r"""
module: hearth_collect
short_description: Bring a run's files from a node to the controller
description:
  - A file or folder that the node does not have is left out, so that a run that failed early
    gives what there is. What comes replaces the earlier copy in one rename.
options:
  workspace:
    description: Workspace of the node.
    type: str
    required: true
  into:
    description: Folder of the run on the controller.
    type: path
    required: true
  files:
    description: Files and folders; path in O(into), and path in the workspace.
    type: dict
    required: true
  fuller:
    description: Whether a file that is here already gives way to a larger one only.
    type: bool
    default: false
"""

RETURN = r"""
collected:
  description: What the node had, by its name in O(into).
  returned: always
  type: list
"""

_COMING = ".coming-"
"""Prefix of the folder that receives files; the pid of the fetching process follows."""


def safe(name: str) -> bool:
    """Return whether a file name reported by a node stays inside its folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts


def same(one: Path, other: Path) -> bool:
    """Return whether two files, or two folders with their contents, are equal."""
    if one.is_dir() != other.is_dir() or not other.exists():
        return False
    if one.is_file():
        return filecmp.cmp(one, other, shallow=False)
    names = {path.relative_to(one) for path in one.rglob("*")}
    return names == {path.relative_to(other) for path in other.rglob("*")} and all(
        same(one / name, other / name) for name in names
    )


def put(fresh: Path, place: Path, fuller: bool = False) -> bool:
    """Replace `place` by `fresh`; return whether anything changed.

    With `fuller`, a file is replaced only by a larger one: a longer record is a later one.
    """
    if same(fresh, place):
        return False
    if fuller and place.is_file() and fresh.stat().st_size <= place.stat().st_size:
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    os.replace(fresh, place)
    return True


def sweep(into: Path) -> None:
    """Remove the receiving folders of dead processes: Ctrl-C skips their clean-up."""
    for left in into.glob(f"{_COMING}*"):
        try:
            os.kill(int(left.name.removeprefix(_COMING).partition("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (ValueError, PermissionError):
            continue


class ActionModule(ActionBase):
    """Fetches from one node."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the names of the fetched files."""
        result = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(
            {
                "workspace": {"type": "str", "required": True},
                "into": {"type": "path", "required": True},
                "files": {"type": "dict", "required": True},
                "fuller": {"type": "bool", "default": False},
            }
        )
        if self._task.check_mode:
            return result | {"skipped": True, "msg": "in check mode nothing is fetched"}
        there = self._low_level_execute_command(
            f"cd {for_shell(options['workspace'])} && pwd", sudoable=False
        )
        if there["rc"] != 0:
            return result | {"changed": False, "collected": []}
        workspace = there["stdout"].strip()
        into = Path(options["into"])
        into.mkdir(parents=True, exist_ok=True)
        sweep(into)
        changed, collected = False, []
        # Beside its destination, so that a rename completes it.
        with tempfile.TemporaryDirectory(dir=into, prefix=f"{_COMING}{os.getpid()}-") as folder:
            for here, there in options["files"].items():
                fresh = Path(folder) / here
                if self._fetch(f"{workspace}/{there}", fresh):
                    with alone(into):
                        changed |= put(fresh, into / here, options["fuller"])
                    collected.append(here)
        return result | {"changed": changed, "collected": collected}

    def _fetch(self, there: str, here: Path) -> bool:
        """Fetch a file or a folder; return whether the node has it and it is not empty."""
        quoted = shlex.quote(there)
        found = self._low_level_execute_command(
            f"find {quoted} -type f -print -quit | grep -q . && "
            f"find {quoted} -type f -printf '%P\\n'",
            sudoable=False,
        )
        if found["rc"] != 0:
            return False
        for name in found["stdout"].split("\n")[:-1] or [""]:
            if name and not safe(name):
                continue
            to = here / name
            to.parent.mkdir(parents=True, exist_ok=True)
            self._connection.fetch_file(f"{there}/{name}" if name else there, str(to))
        return True
