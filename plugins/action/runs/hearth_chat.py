"""Action plugin: prepare a chat with a run's result on a node, and explain how to get there."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.runs.pages import chat_command, describe_chat

DOCUMENTATION = r"""
module: hearth_chat
short_description: Say how to talk to a run's result on a node, or serve it, or end that
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
        """Return the module's result; `say` how to talk to the run."""
        result = super().run(tmp, task_vars)
        given = dict(self._task.args)
        hearth = str(given.pop("hearth", "hearth"))
        result |= self._execute_module("hearth_chat", given, task_vars=task_vars)
        if result.get("failed") or not result.get("command"):
            return result
        node = str(task_vars["inventory_hostname"])
        run, known = str(given["run"]), task_vars["hostvars"][node]
        local = self._connection.transport == "local"
        lines = describe_chat(result, run, node, known, local, hearth)
        answer = {
            "run": run,
            "node": node,
            "command": chat_command(result, known, local),
            "endpoint": result["endpoint"] or None,
        }
        return result | {
            "say": "\n".join(f"  {line}".rstrip() for line in lines),
            "answer": answer,
        }
