"""Action plugin: send files of the controller to a node, unless it already has them.

One small call compares checksums; the archive is sent only to a node that differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase

from hearth_controller.base.paths import as_typed
from hearth_controller.supply.archive import send


class ActionModule(ActionBase):
    """Compares on the node, then sends the missing files."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result."""
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        source = Path(arguments.pop("source"))
        answer = self._execute_module("hearth_tree", arguments, task_vars=task_vars)
        if answer.get("wanted") and not self._task.check_mode:
            files = sorted(arguments["files"])
            try:
                arguments["archive"] = send(self, source, files, C.DEFAULT_LOCAL_TMP)
            except OSError as error:
                why = f"{as_typed(source)} cannot be packed: {error}"
                return result | {"changed": False, "findings": [why]}
            answer = self._execute_module("hearth_tree", arguments, task_vars=task_vars)
        return result | answer
