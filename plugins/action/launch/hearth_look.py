"""Action plugin: inspect a node, which gets the training code first if a `source` is given."""

from __future__ import annotations

from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase

from hearth_controller.supply.code import bring_code


class ActionModule(ActionBase):
    """Sends the code that is missing; the module does the rest."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result."""
        result = super().run(tmp, task_vars)
        if "source" in self._task.args:
            return result | bring_code(self, "hearth_look", task_vars, C.DEFAULT_LOCAL_TMP)
        return result | self._execute_module("hearth_look", task_vars=task_vars)
