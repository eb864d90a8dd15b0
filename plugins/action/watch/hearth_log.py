"""Action plugin: show the end of a run's log on one node, or follow it."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.watch.log import Log
from hearth_controller.watch.node_stream import NodeStream

DOCUMENTATION = r"""
module: hearth_log
short_description: Show the log of a run on a node
description:
  - The output of the ranks, torchrun and the supervisor of the node. Reading it disturbs nothing.
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
    description: Number of last lines to show.
    type: int
    default: 20
  follow:
    description: Whether to show new lines too, until the run has ended on this node.
    type: bool
    default: false
  python:
    description: A Python of the node, which needs no packages; C(python3) if it is missing.
    type: str
    default: python3
"""


class ActionModule(ActionBase):
    """Reads on one node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the last lines (`say`), or show lines as they come until the run ends here."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        follow, files = given.pop("follow"), {"log": given.pop("lines")}
        stream = NodeStream(self._connection, files=files, **given)
        try:
            return result | self._show(Log(stream), task_vars["inventory_hostname"], given, follow)
        except ConnectionError as error:
            raise AnsibleConnectionFailure(str(error)) from None
        finally:
            stream.close()

    def _show(self, log: Log, node: str, given: dict[str, Any], follow: bool) -> dict[str, Any]:
        lines = log.last_lines()
        if lines is None:
            return {"say": f"  {node}: there is no log of {given['run']} here"}
        head = f"  {node}: {given['workspace']}/logs/{given['run']}.log"
        text = "\n".join([head, *(f"    {line}" for line in lines)])
        if not follow:
            return {"say": text, "answer": {"logs": {node: lines}}}
        self._display.display(text)
        while not log.complete:
            if lines := log.new_lines():
                self._display.display("\n".join(f"  {node}: {line}" for line in lines))
        return {}
