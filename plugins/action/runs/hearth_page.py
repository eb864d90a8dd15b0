"""Action plugin: serve a run on a node, or prepare a chat with it, and explain how to get there."""

from __future__ import annotations

import os
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.runs.pages import chat_command, describe_chat, describe_dashboard

DOCUMENTATION = r"""
module: hearth_page
short_description: Serve a run on a node by TensorBoard or as an endpoint, and say how to use it
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
        """Return the module's result; `say` how to open or talk to the run, and how to end it."""
        result = super().run(tmp, task_vars)
        given = dict(self._task.args)
        hearth = str(given.pop("hearth", "hearth"))
        result |= self._execute_module("hearth_page", given, task_vars=task_vars)
        if result.get("failed") or given["state"] == "stopped":
            return result
        node = str(task_vars["inventory_hostname"])
        known = task_vars["hostvars"][node]
        local = self._connection.transport == "local"
        if given["page"] == "dashboard":
            result["wandb_asked"] |= bool(os.environ.get("WANDB_API_KEY"))
            lines = describe_dashboard(result, node, known, local, hearth)
        else:
            run = str(given["run"])
            lines = describe_chat(result, run, node, known, local, hearth)
            result["answer"] = {
                "run": run,
                "node": node,
                "command": chat_command(result, known, local),
                "endpoint": result["served"] or None,
            }
        return (
            result | {"say": "\n".join(f"  {line}".rstrip() for line in lines)} if lines else result
        )
