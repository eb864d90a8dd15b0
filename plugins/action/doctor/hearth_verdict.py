"""Action plugin: show the findings of all nodes together and stop if there are any."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.doctor.message import findings_of, message

DOCUMENTATION = r"""
module: hearth_verdict
short_description: Fail with the findings of all nodes, if there are any
description:
  - Looks at the registered results of earlier tasks. A node that could not be reached, or that
    failed and left the play, is a finding too.
  - Meant to run once. The failure is RV(refused), wrong input, if all results of the controller
    with findings are.
options:
  of:
    description: Names of the registered results.
    type: list
    elements: str
    required: true
  nodes:
    description: Nodes to look at; without any, the results of the controller are.
    type: list
    elements: str
    default: []
  found:
    description: Further findings, by node.
    type: dict
    default: {}
  same:
    description: Facts that must be equal on all nodes.
    type: list
    elements: str
    default: []
  distinct:
    description: Facts that no two nodes may have in common.
    type: list
    elements: str
    default: []
  addresses:
    description: >-
      Cluster addresses by node. A machine that has the address of another, or took that of a node
      that is unreachable, is a finding. Looks at the fact C(network).
    type: dict
    default: {}
  then:
    description: Last line of the message, what the findings mean for the user.
    type: str
    default: ""
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return success, or failure with the whole message."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, arguments = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        of, nodes, found = (arguments.pop(name) for name in ("of", "nodes", "found"))
        known = {node: task_vars["hostvars"][node] for node in nodes}
        results = {node: [its[name] for name in of if name in its] for node, its in known.items()}
        for node, findings in found.items():
            results[node].append({"findings": findings})
        own = [] if nodes else findings_of(task_vars[name] for name in of if name in task_vars)
        text = message(results, task_vars["ansible_play_hosts"], own, **arguments)
        if not text:
            return result
        wrong = [task_vars[name] for name in of if not nodes and findings_of([task_vars[name]])]
        refused = bool(wrong) and all(each.get("refused") for each in wrong)
        return result | {"failed": True, "msg": text, "refused": refused}
