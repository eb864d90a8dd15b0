"""Action plugin: show each node's word on lending, and the run that has it.

The table is that of `hearth_controller.runs.listing`; this plugin only connects it to Ansible.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.runs.listing import lending_lines

DOCUMENTATION = r"""
module: hearth_lend_show
short_description: Show which nodes lend themselves, with the run of each
description:
  - Works on the controller, from what M(hearth_command) has left as C(lend_answer) on the nodes.
    Meant to run once.
options:
  nodes:
    description: Names of the nodes, in order of rank.
    type: list
    elements: str
    required: true
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the table as text (`say`)."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        answers = {
            node: task_vars["hostvars"][node].get("lend_answer", {}).get("facts")
            for node in given["nodes"]
        }
        text = "\n".join(f"  {line}" for line in lending_lines(answers))
        return result | {"say": text, "answer": {"nodes": answers}}
