"""Action plugin: the failure of a run, under the name of the node where it began."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

DOCUMENTATION = r"""
module: hearth_outcome
short_description: Fail on the node that a run failed on, and on no other
options:
  ends:
    description: How the run ended on each node, as M(hearth_follow) returns it, by node.
    type: dict
    required: true
"""


def culprits(ends: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the message of each node on which the run failed; empty if it did not fail.

    The supervisors record one cause on all nodes: the first real failure. A node that cannot
    tell its own end is taken at the word of its peers; if nobody knows more, it speaks for itself.
    """
    found: dict[str, str] = {}
    for end in ends.values():
        cause = end.get("cause") or {}
        if end.get("state") == "failed" and cause.get("node") in ends:
            found.setdefault(cause["node"], str(cause["message"]))
    if found:
        return found
    for node, end in ends.items():
        if end.get("state") not in ("finished", "stopped"):
            cause = end.get("cause") or {}
            found[node] = str(
                cause.get("message") or end.get("message") or "ended without saying why"
            )
    return found


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Fail if the run failed because of this node."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec({"ends": {"type": "dict", "required": True}})
        node = task_vars["inventory_hostname"]
        failed = culprits(options["ends"])
        if node in failed:
            return result | {"failed": True, "msg": failed[node]}
        if failed and options["ends"][node].get("state") == "failed":
            return result | {"note": f"stopped because {' and '.join(failed)} failed"}
        return result
