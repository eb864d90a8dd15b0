"""Action plugin: the failure of a run, under the name of the node where it began, with its cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.controller.ends import culprits
from hearth.diagnose import last_error, last_launch
from hearth.diagnose.catalogue import diagnosis, explained

DOCUMENTATION = r"""
module: hearth_outcome
short_description: Fail on the node that a run failed on, and on no other
options:
  ends:
    description: How the run ended on each node, as M(hearth_follow) returns it, by node.
    type: dict
    required: true
  logs:
    description: Folder on the controller with the logs that were collected, C(NODE.log).
    type: path
    required: true
"""


def told(message: str, log: str, by_rank: bool) -> str:
    """Return what the screen shows of a failure: the error as it is, its cause and its cure.

    `log` is the node's. What Hearth reports itself says what to do and stays as it is; that a
    cause is not known is said only of an error of a rank (`by_rank`).
    """
    own = last_error(last_launch(log))
    if own and own.told and own.message == message:
        return message
    found = diagnosis(message, log)
    return "\n".join([message, *(explained(found) if found or by_rank else [])])


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Fail if the run failed because of this node."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(
            {
                "ends": {"type": "dict", "required": True},
                "logs": {"type": "path", "required": True},
            }
        )
        node, ends = task_vars["inventory_hostname"], options["ends"]
        failed = culprits(ends)
        if node in failed:
            file = Path(options["logs"]) / f"{node}.log"
            log = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
            kinds = {(end.get("cause") or {}).get("kind") for end in ends.values()}
            message = told(failed[node], log, by_rank="rank_failed" in kinds)
            return result | {"failed": True, "msg": message}
        if failed and ends[node].get("state") == "failed":
            return result | {"note": f"stopped because {' and '.join(failed)} failed"}
        return result
