"""Action plugin: show the end of a run's log on one node, or follow it."""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth_controller.watch.log import Log

DOCUMENTATION = r"""
module: hearth_log
short_description: Show the log of a run on a node
description:
  - What the ranks, torchrun and the supervisor of the node have said. Looking disturbs nothing.
options:
  run:
    description: Name of the run.
    type: str
    required: true
  workspace:
    description: Workspace of the node.
    type: str
    required: true
  lines:
    description: So many of the last lines.
    type: int
    default: 20
  follow:
    description: Whether to show what is added too, until the run has ended on this node.
    type: bool
    default: false
  interval:
    description: Seconds between two looks.
    type: float
    default: 1
"""

RETURN = r"""
say:
  description: The lines.
  type: str
  returned: without O(follow)
"""

_PATIENCE = 180.0
"""Timeout in seconds, after which a silent node is no longer followed."""


class ActionModule(ActionBase):
    """Reads on one node."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the last lines, or show lines as they come until the run has ended here."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(
            {
                "run": {"type": "str", "required": True},
                "workspace": {"type": "str", "required": True},
                "lines": {"type": "int", "default": 20},
                "follow": {"type": "bool", "default": False},
                "interval": {"type": "float", "default": 1},
            }
        )
        node = task_vars["inventory_hostname"]
        log = Log(given["workspace"], given["run"], self._ask)
        lines = log.last_lines(given["lines"])
        if lines is None:
            return result | {"say": f"  {node}: there is no log of {given['run']} here"}
        text = "\n".join([f"  {node}: {log.path}", *(f"    {line}" for line in lines)])
        if not given["follow"]:
            return result | {"say": text}
        self._display.display(text)
        while not log.complete:
            time.sleep(given["interval"])
            try:
                lines = log.new_lines()
            except AnsibleConnectionFailure:
                if time.monotonic() - log.probe.answered > _PATIENCE:
                    raise
                continue
            if lines:
                self._display.display("\n".join(f"  {node}: {line}" for line in lines))
        return result

    def _ask(self, command: str) -> str:
        answer = self._low_level_execute_command(command, sudoable=False)
        if answer["rc"] == 255:
            raise AnsibleConnectionFailure(answer["stderr"] or "no answer")
        return str(answer["stdout"])
