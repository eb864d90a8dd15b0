"""Action plugin: create a node's Python environment; send Miniforge's installer if needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Calls the module, once its files are on the node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result."""
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        here = arguments.pop("installer", "")
        if here and not self._task.check_mode:
            folder = self._make_tmp_path()  # Ansible removes it when the task ends
            there = self._connection._shell.join_path(folder, Path(here).name)
            self._transfer_file(here, there)
            self._fixup_perms2((folder, there))
            arguments["installer"] = there
        return result | self._execute_module("hearth_interpreter", arguments, task_vars=task_vars)
