"""Action plugin: run each node's part in verifying the cluster, and show the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.color import stringc

from hearth_controller.base.options import argument_spec
from hearth_controller.doctor.single import show_single
from hearth_controller.doctor.verify import (
    Level,
    Line,
    observations,
    show,
    spec_of,
    sum_of,
    why_gone,
)

DOCUMENTATION = r"""
module: hearth_verify
short_description: Verify the cluster
options:
  verb:
    description:
      - V(facts), V(talk) and V(all_reduce) do that on each node, see the module.
      - V(single) has each node compute by itself.
      - V(show) and V(show_single) return the table and, by node, how it stands. Meant to run once.
      - The results of the others are expected as C(verify_look), C(verify_talk), C(verify_sum) and
        C(verify_alone).
    type: str
    choices: [facts, talk, all_reduce, single, show, show_single]
    required: true
  nodes:
    description: The nodes with C(name), C(rank) and C(address), in order of rank.
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
  variables:
    description: Environment variables of what runs on the node, by name.
    type: dict
    default: {}
  nproc:
    description: Processes on the node for V(all_reduce); 0 is one a GPU, and at least one.
    type: int
    default: 0
  token:
    description: Secret shared by the supervisors, for V(all_reduce).
    type: str
    no_log: true
  limit:
    description: Timeout of V(all_reduce) in seconds.
    type: float
    default: 60
  hearth:
    description: The C(hearth) command for the same inventory, for V(show) and V(single).
    type: str
    default: hearth
"""

_COLORS: dict[Level, str] = {
    "good": C.COLOR_OK,
    "advice": C.COLOR_CHANGED,
    "fault": C.COLOR_ERROR,
}


def colored(lines: Sequence[Line]) -> str:
    """Return the lines as one text, colored by level on a terminal."""
    return "\n".join(
        f"  {stringc(text, _COLORS[level]) if level else text}".rstrip() for level, text in lines
    )


class ActionModule(ActionBase):
    """Runs its module on a node, or shows the results of all."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, or the table."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        names, own = [str(node["name"]) for node in given["nodes"]], task_vars["inventory_hostname"]
        known = {name: task_vars["hostvars"][name] for name in names}
        looks, talks, sums, alone = (
            {name: its.get(answer, {}) for name, its in known.items()}
            for answer in ("verify_look", "verify_talk", "verify_sum", "verify_alone")
        )
        locks = {name: str(its.get("python_lock", "auto")) for name, its in known.items()}
        if given["verb"] == "show_single":
            playing = task_vars["ansible_play_hosts"]
            gone = {name: why_gone(answer, name in playing) for name, answer in alone.items()}
            lines, levels = show_single(alone, gone, locks)
            return result | {"say": colored(lines), "levels": levels, "answer": {"nodes": alone}}
        nodes = observations(given["nodes"], looks, talks, task_vars["ansible_play_hosts"])
        if given["verb"] == "show":
            lines, levels = show(nodes, sum_of(sums.values()), given["hearth"], locks)
            facts = {
                node.name: asdict(node) | {"level": levels["levels"].get(node.name)}
                for node in nodes
            }
            return result | {"say": colored(lines), "answer": {"nodes": facts}} | levels
        if given["verb"] == "single":
            spec = {"install": f"{given['hearth']} provision --tags python"}
        else:
            spec = spec_of(
                given["verb"], nodes[names.index(own)], nodes, given["nproc"], given["limit"]
            )
        if spec is None:
            return result | {"skipped": True}
        arguments = {
            "command": ["hearth.node", given["verb"].replace("_", "-")],
            "workspace": given["workspace"],
            "python": given["python"],
            "variables": given["variables"],
            "node": own,
            "spec": spec,
            "secret": given["token"],
        }
        return result | self._execute_module("hearth_command", arguments, task_vars=task_vars)
