"""Action plugin: ask each node's stages of provisioning, and show the problems of all nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec, run_module
from hearth_controller.doctor.examine import node_of, show
from hearth_controller.doctor.node import NodeGroup
from hearth_controller.doctor.verify import observations

DOCUMENTATION = r"""
module: hearth_doctor
short_description: Diagnose the nodes
options:
  verb:
    description:
      - V(stages) asks modules of provisioning whether they would change something; give it
        C(check_mode).
      - V(show) returns the table, and by node the repairs that Hearth can make. Meant to run
        once. Expects the results of M(hearth_examine) as C(doctor_look) and C(doctor_claims),
        V(stages) without and with root as C(doctor_plain) and C(doctor_rooted), C(doctor_root)
        (whether there is root), C(python_look), and the inputs of M(hearth_verify).
    type: str
    choices: [stages, show]
    required: true
  nodes:
    description: With V(show), the nodes with C(name), C(rank) and C(address), in order of rank.
    type: list
    elements: dict
    default: []
  stages:
    description: With V(stages), the arguments of each module by its name.
    type: dict
    default: {}
  one_computer:
    description: With V(show), whether all nodes share one computer.
    type: bool
    default: false
  hearth:
    description: The C(hearth) command for the same inventory, for V(show).
    type: str
    default: hearth
"""


class ActionModule(ActionBase):
    """Runs modules on a node, or shows the results of all."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the results of the `stages` by name, or the table.

        With the table (`say`) come the same as data (`answer`), and `mends`: possible repairs by
        node.
        """
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        if given["verb"] == "show":
            return result | self._shown(given, task_vars)
        return result | {"stages": self._stages(given["stages"], task_vars)}

    def _stages(self, stages: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        """Return each module's predicted change."""
        return {
            module.removeprefix("hearth_"): run_module(self, module, arguments or {}, task_vars)
            for module, arguments in stages.items()
        }

    def _shown(self, given: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
        """Return the table of all nodes, from the results of earlier tasks."""
        known, playing = task_vars["hostvars"], set(task_vars["ansible_play_hosts"])
        looks, talks, mending = (
            {str(node["name"]): known[node["name"]].get(variable, {}) for node in given["nodes"]}
            for variable in ("verify_look", "verify_talk", "doctor_mends")
        )
        nodes = []
        for verified in observations(given["nodes"], looks, talks, playing):
            its = known[verified.name]
            words = ("look", "plain", "rooted", "root", "claims")
            answers = {word: its.get(f"doctor_{word}", {}) for word in words}
            answers["packages"] = its.get("python_look", {})
            one_computer, connection = given["one_computer"], its.get("ansible_connection")
            lock, watts = its.get("python_lock", "auto"), int(its.get("power_limit", 0))
            nodes.append(node_of(verified, answers, one_computer, connection, lock, watts))
        # A node on which a stage failed has left the play.
        done = set() if self._task.check_mode else playing
        return show(NodeGroup(tuple(nodes), given["hearth"]), mending, done)
