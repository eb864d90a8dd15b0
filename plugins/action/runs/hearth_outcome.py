"""Action plugin: report a run's failure for the node that caused it, with the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.runs.outcome import Outcome

DOCUMENTATION = r"""
module: hearth_outcome
short_description: Fail on the node that a run failed on, and on no other
options:
  answers:
    description: How the run ended on each node, as M(hearth_follow) returns it.
    type: list
    elements: dict
    required: true
  logs:
    description: Folder on the controller with the logs that were collected, C(NODE.log).
    type: path
    required: true
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Fail if the run failed because of this node."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        node, outcome = task_vars["inventory_hostname"], Outcome.from_answers(options["answers"])
        ends = outcome.by_node
        if node not in ends:
            return result
        failed = outcome.failures(Path(options["logs"]))
        here = task_vars["ansible_play_hosts_all"]
        told = [failed[node]] if node in failed else []
        # The first node of this command reports for nodes that are not part of it.
        if node == next(name for name in here if name in ends):
            told += [f"{name}: {message}" for name, message in failed.items() if name not in here]
        if told:
            return result | {"failed": True, "msg": "\n".join(told)}
        if failed and ends[node].get("state") == "failed":
            return result | {"note": f"stopped because {' and '.join(failed)} failed"}
        return result
