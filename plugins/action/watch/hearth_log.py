"""Action plugin: show the end of a run's log on one node, or follow it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth.supervise.cause import ENDS
from hearth_controller.base.paths import for_shell

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

_MARK = "--hearth--"
_GONE = 3
"""Number of polls without a living supervisor after which the log counts as complete."""
_PATIENCE = 180.0
"""Timeout in seconds, after which a silent node is no longer followed."""

# Terminal escape sequences: colours, cursor movements, titles.
_COMMAND = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")


def shown(line: str) -> str:
    """Return a log line that is safe for a terminal; of a progress bar, its last state."""
    last = _COMMAND.sub("", line).rstrip("\r").rpartition("\r")[2].expandtabs()
    return "".join(c for c in last if c.isprintable()).rstrip()


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
        place = f"{given['workspace']}/logs/{given['run']}.log"
        size, text = self._read(place, f"tail -n {given['lines']}")
        if size is None:
            return result | {"say": f"  {node}: there is no log of {given['run']} here"}
        told = [f"  {node}: {place}", *(f"    {shown(line)}" for line in text.splitlines())]
        if not given["follow"]:
            return result | {"say": "\n".join(told)}
        self._show(told)
        self._follow(node, place, size, given)
        return result

    def _follow(self, node: str, place: str, size: int, given: Mapping[str, Any]) -> None:
        """Show complete lines as they are added, until the run has ended on this node."""
        gone, pid, half, answered = 0, 0, "", time.monotonic()
        while gone < _GONE:
            time.sleep(given["interval"])
            try:
                over, pid = self._over(given, pid)
                new, text = self._read(place, f"tail -c +{size + 1}")
            except AnsibleConnectionFailure:
                if time.monotonic() - answered > _PATIENCE:
                    raise
                continue
            answered = time.monotonic()
            if new is None or new < size:  # the log was replaced
                size, half = 0, ""
                continue
            size = new
            *whole, half = (half + text).split("\n")
            self._show([f"  {node}: {shown(line)}" for line in whole])
            gone = gone + 1 if over else 0

    def _over(self, given: Mapping[str, Any], pid: int) -> tuple[bool, int]:
        """Return whether the run's supervisor is gone, and its pid."""
        record = for_shell(f"{given['workspace']}/results/{given['run']}/supervisor.json")
        alive = f"if kill -0 {pid} 2>/dev/null; then echo alive; else echo gone; fi"
        answer = self._ask(f"{alive}; cat {record}")
        state, _, text = answer.partition("\n")
        try:
            said = json.loads(text)
        except ValueError:
            return True, 0
        return said["state"] in ENDS or (pid != 0 and state == "gone"), int(said["pid"])

    def _read(self, place: str, part: str) -> tuple[int | None, str]:
        """Return the log's size in bytes (None if there is no log) and the requested part of it."""
        file = for_shell(place)
        answer = self._ask(
            f"test -f {file} || exit 0; size=$(wc -c < {file}); echo $size; echo {_MARK}; "
            f"head -c $size {file} | {part}"
        )
        head, mark, text = answer.partition(f"{_MARK}\n")
        return (int(head), text) if mark else (None, "")

    def _ask(self, command: str) -> str:
        answer = self._low_level_execute_command(command, sudoable=False)
        if answer["rc"] == 255:
            raise AnsibleConnectionFailure(answer["stderr"] or "no answer")
        return str(answer["stdout"])

    def _show(self, lines: list[str]) -> None:
        if lines:
            self._display.display("\n".join(lines))
