"""Action plugin: send the training code to a node, unless it already has it."""

from __future__ import annotations

from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase

from hearth import __version__
from hearth_controller.supply.code import bring_code


class ActionModule(ActionBase):
    """Compares on the node, then sends the missing files."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, and the `version` of the training code."""
        result = super().run(tmp, task_vars) | {"version": __version__}
        return result | bring_code(
            self, "hearth_workspace", self._task.args, task_vars, C.DEFAULT_LOCAL_TMP
        )
