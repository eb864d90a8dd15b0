"""Action plugin: the decisions of a launch, from the answers of all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.errors import LaunchError
from hearth.base.places import LIBRARIES
from hearth_controller.base.options import argument_spec
from hearth_controller.doctor.message import message
from hearth_controller.launch.decisions import Launch

DOCUMENTATION = r"""
module: hearth_launch
short_description: Decide how a run is launched
description:
  - Works on the controller, from registered results of all nodes. Meant to run once, except
    V(ports), which runs on each node.
  - V(pair), V(place), V(agree) and V(choose) fail with all findings of all nodes, if there are any.
options:
  verb:
    description:
      - V(ports) asks the other nodes for their ports, so that a firewall in between is found.
      - V(plan) says whether the model fits and who sends what to whom, after all were inspected.
      - V(pair) returns the links that are measured before layers are placed.
      - V(place) returns the run with its layers placed (C(parallel=pipeline)), and the transfer to
        its nodes.
      - V(agree) stops the launch if a node found anything or differs from the others.
      - V(choose) returns the nodes that train and the launch spec of each.
    type: str
    choices: [ports, plan, pair, place, agree, choose]
    required: true
  run:
    description: The run, as M(hearth_run) returns it.
    type: dict
    required: true
  nodes:
    description: The nodes of the inventory with C(name) and C(address), in order of rank.
    type: list
    elements: dict
    required: true
  at:
    description: Workspace and Python of this node, as M(hearth_command) takes them; for V(ports).
    type: dict
    default: {}
  answers:
    description: Names of the registered results, by step of the launch.
    type: dict
    required: true
  found:
    description: Findings by node from V(plan), for V(agree).
    type: dict
    default: {}
  shared:
    description: The folder that all nodes share, if any; for V(plan) and V(place).
    type: str
    default: ""
  direct_mb:
    description: >-
      Largest data file in MB that the controller sends to every node; for V(plan) and V(place).
    type: float
    default: 32
  timeouts:
    description: Timeouts of the supervisors in seconds, for V(choose).
    type: dict
    default: {}
  slurm:
    description: >-
      Slurm's names of the nodes (C(nodes), by name) and the C(options) of a job, for V(choose);
      empty without Slurm, and then V(plan) refuses what was typed for a job.
    type: dict
    default: {}
"""

_NOTHING = "Nothing was started on any node."

_SLURM_QUEUES = (
    "-e queue and -e at: this run is a job of Slurm, which has a queue of its own; leave them out, "
    "and for a start at a time put --begin=23:00 into hearth_slurm_options (docs/scripts.md). "
    f"{_NOTHING}"
)


def _without_slurm(options: Sequence[str]) -> str:
    """Return the error about options of a job for a run that is none."""
    return (
        f"{' '.join(options)}: this run is started without Slurm; add -e launcher=slurm, or leave "
        f"it out. {_NOTHING}"
    )


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the decision, or fail with the findings of all nodes.

        Each verb but `ports`, which returns the node's answer, returns what the method of `Launch`
        with its name does; `say` is the text to show.
        """
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        run, known = given["run"], task_vars["hostvars"]
        addresses = {
            str(node["name"]): str(node["address"])
            for node in given["nodes"]
            if node["name"] in run["requested"]
        }
        answers = {
            step: {name: known[name].get(variable, {}) for name in addresses}
            for step, variable in given["answers"].items()
        }
        locks = {name: str(known[name].get("python_lock", "auto")) for name in addresses}
        launch = Launch(run, addresses, answers, locks)
        if given["verb"] == "ports":
            spec = launch.ports().get(task_vars["inventory_hostname"])
            if spec is None:
                return result | {"skipped": True}
            arguments = given["at"] | {"command": ["hearth.node", "ports"], "spec": spec}
            return result | self._execute_module("hearth_command", arguments, task_vars=task_vars)
        if given["verb"] == "plan":
            if run["job_options"] and not given["slurm"]:
                return result | {"failed": True, "msg": _without_slurm(run["job_options"])}
            if run["queue"] and given["slurm"]:
                return result | {"failed": True, "msg": _SLURM_QUEUES}
            return result | launch.plan(given["shared"], given["direct_mb"] * 1e6)
        placing = given["verb"] in ("pair", "place")
        idle = {} if placing else launch.idle_gpus()
        prepared = {} if placing else launch.prepared
        results = {
            name: [
                {
                    "findings": [*given["found"].get(name, []), *idle.get(name, [])],
                    "facts": prepared.get(name, {}),
                }
            ]
            + [answer[name] for answer in answers.values()]
            for name in addresses
        }
        text = message(
            results,
            task_vars["ansible_play_hosts"],
            same=[*LIBRARIES, "Hearth", "data", "model", "shared"],
            then=_NOTHING,
            without=True,
        )
        if text:
            return result | {"failed": True, "msg": text}
        if self._task.check_mode:
            return result
        if given["verb"] == "pair":
            return result | launch.pair()
        if given["verb"] == "agree":
            return result | launch.agree()
        try:
            if given["verb"] == "place":
                return result | launch.place(given["shared"], given["direct_mb"] * 1e6)
            return result | launch.choose(given["timeouts"], given["slurm"])
        except LaunchError as error:
            return result | {"failed": True, "msg": "\n".join([*error.findings, _NOTHING])}
