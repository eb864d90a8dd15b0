"""Action plugin: send the training code to a node, unless it already has it.

One small call compares checksums; the archive is sent only to a node that differs.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.supply.archive import pack

_MADE_BY_TOOLS = ("__pycache__", ".egg-info", ".ruff_cache")


def code_files(source: Path) -> list[Path]:
    """Return the files of the training code that a node needs, relative to `source` and sorted."""
    files = (path.relative_to(source) for path in source.rglob("*") if path.is_file())
    return sorted(
        path for path in files if not any(part.endswith(_MADE_BY_TOOLS) for part in path.parts)
    )


class ActionModule(ActionBase):
    """Compares on the node, then sends what is missing."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result."""
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        source = Path(arguments.pop("source"))
        files = code_files(source)
        arguments["code"] = {
            name.as_posix(): hashlib.sha256((source / name).read_bytes()).hexdigest()
            for name in files
        }
        # In check mode the module only inspects; otherwise it also creates the folders.
        answer = self._execute_module("hearth_workspace", arguments, task_vars=task_vars)
        sends = answer.get("differing") and not answer.get("under_way")
        if sends and not self._task.check_mode:
            changed = answer["changed"]
            answer = self._send(arguments, source, files, task_vars)
            answer["changed"] = bool(answer.get("changed") or changed)
        if run := answer.get("under_way"):
            answer["note"] = (
                f"run '{run}' is under way here and may start again with the training code that it "
                "began with: the code stays as it is until then"
            )
        return result | answer

    def _send(
        self, arguments: dict[str, Any], source: Path, files: list[Path], task_vars: Any
    ) -> dict[str, Any]:
        """Transfer an archive of the code and call the module again, now with it."""
        folder = self._make_tmp_path()  # Ansible removes it when the task ends
        there = self._connection._shell.join_path(folder, "code.tar")
        with tempfile.NamedTemporaryFile(prefix="hearth-", suffix=".tar") as here:
            pack(source, files, here)
            here.flush()
            self._transfer_file(here.name, there)
        self._fixup_perms2((folder, there))
        arguments["archive"] = there
        return self._execute_module("hearth_workspace", arguments, task_vars=task_vars)
