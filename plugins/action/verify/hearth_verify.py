"""Action plugin: run each node's part in verifying the cluster, and show the results.

The verdict is that of `hearth.verify.judgement`; this plugin only connects it to Ansible.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase
from ansible.utils.color import stringc

from hearth.verify.judgement import Level, Observation, Sum, judge, remarks, why_no_sum
from hearth.verify.table import Line, table
from hearth_controller.doctor.verified import seen

DOCUMENTATION = r"""
module: hearth_verify
short_description: Verify the cluster
options:
  verb:
    description:
      - V(look), V(talk) and V(all_reduce) do that on each node, see the module.
      - V(show) returns the table and, by node, how it stands. Meant to run once.
      - The results of the first three are expected as C(verify_look), C(verify_talk) and
        C(verify_sum).
    type: str
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
  nproc:
    description: Processes on the node for V(all_reduce); 0 is one a GPU, and at least one.
    type: int
    default: 0
  token:
    description: Secret shared by the supervisors, for V(all_reduce).
    type: str
  limit:
    description: Seconds after which V(all_reduce) is given up.
    type: float
    default: 60
  playbook:
    description: The command that plays on the same inventory, for V(show).
    type: str
    default: ansible-playbook
"""

# Read at import, in Ansible's main process: a worker has no terminal.
COLUMNS = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120

_COLORS: dict[Level, str] = {
    "good": C.COLOR_OK,
    "advice": C.COLOR_CHANGED,
    "fault": C.COLOR_ERROR,
}
_IDLE = 30
"""Idle timeout of a node's listener in seconds; one more second is added per node."""


def sum_of(known: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> Sum | None:
    """Return the result of the all-reduce across all nodes, None if it was not tried."""
    answers = [known[name].get("verify_sum", {}) for name in names]
    tried = [answer for answer in answers if "facts" in answer]
    failed = [answer for answer in tried if answer.get("findings")]
    if failed:
        return Sum(culprit=failed[0]["facts"].get("culprit"), failure=failed[0]["findings"][0])
    return Sum(facts=next((a["facts"] for a in tried if a["facts"]), {})) if tried else None


def colored(lines: Sequence[Line]) -> str:
    """Return the lines as one text, colored by level on a terminal."""
    return "\n".join(
        f"  {stringc(text, _COLORS[level]) if level else text}".rstrip() for level, text in lines
    )


class ActionModule(ActionBase):
    """Runs its module on a node, or shows the results of all."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, or the table."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(
            {
                "verb": {
                    "type": "str",
                    "choices": ["look", "talk", "all_reduce", "show"],
                    "required": True,
                },
                "nodes": {"type": "list", "elements": "dict", "required": True},
                "workspace": {"type": "str", "required": True},
                "python": {"type": "str", "required": True},
                "nproc": {"type": "int", "default": 0},
                "token": {"type": "str", "no_log": True},
                "limit": {"type": "float", "default": 60},
                "playbook": {"type": "str", "default": "ansible-playbook"},
            }
        )
        playing = set(task_vars["ansible_play_hosts"])
        known = task_vars["hostvars"]
        looks, talks = (
            {str(node["name"]): known[node["name"]].get(variable, {}) for node in given["nodes"]}
            for variable in ("verify_look", "verify_talk")
        )
        nodes = seen(given["nodes"], looks, talks, playing)
        if given["verb"] == "show":
            return result | self._shown(nodes, given, task_vars)
        own = next(node for node in nodes if node.name == task_vars["inventory_hostname"])
        spec = self._spec(own, nodes, given)
        if spec is None:
            return result | {"skipped": True}
        arguments = {
            "verb": given["verb"],
            "workspace": given["workspace"],
            "python": given["python"],
            "node": own.name,
            "spec": spec,
            "token": given["token"] if given["verb"] == "all_reduce" else None,
        }
        return result | self._execute_module("hearth_verify", arguments, task_vars=task_vars)

    @staticmethod
    def _spec(
        own: Observation, nodes: Sequence[Observation], given: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return the verb's arguments for this node, None if it takes no part."""
        if given["verb"] == "look":
            allowed = [node.address for node in nodes]
            return {"address": own.address, "allowed": allowed, "idle": _IDLE + len(nodes)}
        usable = [node for node in nodes if node.usable]
        if own not in usable or len(usable) < 2:
            return None
        if given["verb"] == "talk":
            peers = [
                {"name": node.name, "address": node.address, "port": node.facts["port"]}
                for node in usable
            ]
            busy = any(node.facts["busy"] for node in usable)
            return {"own": own.name, "peers": peers, "speed": not busy}
        if why_no_sum(nodes):
            return None
        nproc = given["nproc"] or max(1, own.facts["devices"])
        launch = {
            "run": "hearth-verify",
            "node": own.name,
            "rank": usable.index(own),
            "nodes": [node.name for node in usable],
            "address": own.address,
            "meeting": {
                "address": usable[0].address,
                "port": usable[0].facts["meeting_port"],
            },
            "nproc": nproc,
            "ready_timeout": given["limit"] / 2,
            "stop_grace": 5,
        }
        return {"launch": launch, "limit": given["limit"]}

    @staticmethod
    def _shown(
        nodes: Sequence[Observation], given: Mapping[str, Any], task_vars: Any
    ) -> dict[str, Any]:
        """Return the table as text, and the state of each node."""
        known = task_vars["hostvars"]
        total = sum_of(known, [node.name for node in nodes])
        locks = {node.name: str(known[node.name].get("python_lock", "auto")) for node in nodes}
        verdicts = judge(nodes, total, f"{given['playbook']} provision.yml", locks)
        lines = table(nodes, verdicts, COLUMNS - 2)
        below = remarks(nodes, total, why_no_sum(nodes) if total is None else "")
        lines += [(None, line) for line in below]
        levels = {name: advice.level for name, advice in verdicts.items()}
        failed = total is not None and bool(total.failure)
        if "fault" not in levels.values() and not failed:
            lines.append(("good", f"All {len(nodes)} nodes are verified."))
        return {"say": colored(lines), "levels": levels, "sum_failed": failed}
