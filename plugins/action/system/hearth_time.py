"""Action plugin: run the module of the same name, and measure the node's clock skew."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.clock import difference, skew


class ActionModule(ActionBase):
    """Reads the clock here before and after the node's."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, with a note on the clock."""
        result = super().run(tmp, task_vars)
        before = time.time()
        result |= self._execute_module("hearth_time", self._task.args, task_vars=task_vars)
        if "now" in result:
            result["skew"] = skew(before, result["now"], time.time())
            if off := difference(result["skew"], tolerated=1.0):
                result["note"] = f"its clock is {off}"
        return result
