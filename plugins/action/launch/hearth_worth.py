"""Action plugin: measure the links between the nodes, or choose the nodes of a run."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.launch.prediction import NodeFacts, choose_nodes

DOCUMENTATION = r"""
module: hearth_worth
short_description: Measure the links between the nodes, or say whether the cluster is worth it
options:
  verb:
    description:
      - V(links) speaks with every other node and measures how fast they hear it. What each node
        left is expected as C(launch_measured).
      - V(choose) predicts the run from C(launch_measured) and C(launch_links) of all nodes, and
        returns the nodes that make it faster. With C(parallel=fsdp) it returns all of them and
        says what the network costs. Meant to run once.
    type: str
    required: true
  nodes:
    description: The nodes with C(name) and C(address), in order of rank.
    type: list
    elements: dict
    required: true
  workspace:
    description: The workspace of the node. May start with C(~).
    type: str
    required: true
  python:
    description: Python of the environment that trains. May start with C(~).
    type: str
    required: true
  run:
    description: The run, as M(hearth_run) returns it.
    type: dict
    required: true
"""

RETURN = r"""
names:
  description: The nodes that are to train, in order of rank.
  type: list
  returned: with V(choose)
stop_grace:
  description: How many seconds a stop leaves the ranks to end their step and keep a checkpoint.
  type: float
  returned: with V(choose), without findings
say:
  description: What a person should know before the run.
  type: str
  returned: with V(choose), if there is anything to say
findings:
  description: What stands in the way of these nodes together.
  type: list
  returned: with V(choose)
"""


class ActionModule(ActionBase):
    """Measures on a node, or chooses on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the speed of the node's links, or the nodes that train."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(
            {
                "verb": {"type": "str", "choices": ["links", "choose"], "required": True},
                "nodes": {"type": "list", "elements": "dict", "required": True},
                "workspace": {"type": "str", "required": True},
                "python": {"type": "str", "required": True},
                "run": {"type": "dict", "required": True},
            }
        )
        nodes = {
            str(node["name"]): NodeFacts(
                *(
                    task_vars["hostvars"][node["name"]].get(report, {}).get("facts", {})
                    for report in ("launch_prepared", "launch_measured", "launch_links")
                )
            )
            for node in given["nodes"]
        }
        if given["verb"] == "choose":
            return result | choose_nodes(given["run"], nodes)
        peers = [
            {
                "name": node["name"],
                "address": node["address"],
                "port": nodes[str(node["name"])].measured["port"],
            }
            for node in given["nodes"]
        ]
        own = task_vars["inventory_hostname"]
        arguments = {
            "verb": "talk",
            "workspace": given["workspace"],
            "python": given["python"],
            "node": own,
            "spec": {"own": own, "peers": peers, "speed": True},
        }
        return result | self._execute_module("hearth_verify", arguments, task_vars=task_vars)
