"""Action plugin: send files of the controller to a node, unless it already has them.

One small call compares checksums; the archive is sent only to a node that differs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase

from hearth_controller.base.paths import as_typed
from hearth_controller.supply.archive import pack


class ActionModule(ActionBase):
    """Compares on the node, then sends what is missing."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result."""
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        source = Path(arguments.pop("source"))
        answer = self._execute_module("hearth_tree", arguments, task_vars=task_vars)
        if answer.get("wanted") and not self._task.check_mode:
            answer = self._send(source, arguments, task_vars)
        return result | answer

    def _send(self, source: Path, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Transfer an archive of all files and call the module again, now with it."""
        folder = self._make_tmp_path()  # Ansible removes it when the task ends
        there = self._connection._shell.join_path(folder, "files.tar")
        # Not in /tmp, which may be a tmpfs.
        with tempfile.NamedTemporaryFile(suffix=".tar", dir=C.DEFAULT_LOCAL_TMP) as here:
            try:
                # Uncompressed: on a home network, compressing takes longer than sending.
                pack(source, sorted(arguments["files"]), here)
                here.flush()
            except OSError as error:
                why = f"{as_typed(source)} cannot be packed: {error}"
                return {"changed": False, "findings": [why]}
            self._transfer_file(here.name, there)
        self._fixup_perms2((folder, there))
        arguments["archive"] = there
        return self._execute_module("hearth_tree", arguments, task_vars=task_vars)
