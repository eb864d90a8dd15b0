"""Action plugin: start or stop TensorBoard on a node, and explain how to open it."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.runs.pages import describe_dashboard

DOCUMENTATION = r"""
module: hearth_dashboard
short_description: Start TensorBoard for a run on a node, or end it, and say how to look at it
description:
  - Takes the options of the module of this name, and those below.
options:
  hearth:
    description: The C(hearth) command for the same inventory.
    type: str
    default: hearth
"""


class ActionModule(ActionBase):
    """Runs its module on a node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result; `say` how to open the TensorBoard and how to end it."""
        result = super().run(tmp, task_vars)
        given = dict(self._task.args)
        hearth = str(given.pop("hearth", "hearth"))
        result |= self._execute_module("hearth_dashboard", given, task_vars=task_vars)
        if result.get("failed") or not result.get("dashboard"):
            return result
        result["wandb_asked"] |= bool(os.environ.get("WANDB_API_KEY"))
        node = str(task_vars["inventory_hostname"])
        lines = describe_dashboard(
            result,
            node,
            task_vars["hostvars"][node],
            local=self._connection.transport == "local",
            hearth=hearth,
        )
        return result | {"say": "\n".join(f"  {line}".rstrip() for line in lines)}
