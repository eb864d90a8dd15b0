"""Action plugin: show the first examples of a run's data as they will be trained."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.color import ANSIBLE_COLOR

from hearth.node.preview import lines, of_answer
from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.doctor.message import message

DOCUMENTATION = r"""
module: hearth_preview
short_description: Show the first examples of a run's data as they will be trained
description:
  - Works on the controller, on what C(hearth.node preview) has answered on a node. Meant to run
    once.
options:
  node:
    description: Name of the node.
    type: str
    required: true
  answer:
    description: Its answer.
    type: dict
    required: true
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the examples and the table as text (`say`), or fail with the node's findings."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        name, answer = given["node"], given["answer"]
        text = message({name: [answer]}, [name], then="Nothing was trained.")
        if text:
            return result | {"failed": True, "msg": text}
        shown = lines(of_answer(answer["facts"]), bool(ANSIBLE_COLOR), TABLE_WIDTH)
        text = "\n".join(f"  {line}".rstrip() for line in shown)
        return result | {"say": text, "answer": answer["facts"]}
