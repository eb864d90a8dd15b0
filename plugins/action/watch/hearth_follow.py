"""Action plugin: follow a run on one node until it ends there.

Nothing here can disturb the run: Ctrl-C stops watching; training continues.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import Screen
from hearth_controller.watch.follow import Follower
from hearth_controller.watch.node_stream import NodeStream

DOCUMENTATION = r"""
module: hearth_follow
short_description: Show the progress of a run and wait for its end on this node
options:
  run:
    description: Name of the run.
    type: str
    required: true
  workspace:
    description: Workspace of the node.
    type: str
    required: true
  python:
    description: A Python of the node, which needs no packages; C(python3) if it is missing.
    type: str
    default: python3
  interval:
    description: Seconds between two looks of the node at its files.
    type: float
    default: 1
  patience:
    description: Seconds without any answer of the node after which it is given up.
    type: float
    default: 180
"""

RETURN = r"""
node:
  description: Name of this node.
  returned: always
  type: str
state:
  description: How the run ended here - C(finished), C(stopped), C(failed), C(lost) or C(unknown).
  returned: always
  type: str
gone:
  description: Whether the node answers, and its supervisor is gone without a word.
  returned: if so
  type: bool
message:
  description: Why it is not known how the run ended here.
  returned: with C(lost) and C(unknown)
  type: str
cause:
  description: Why, as the supervisor recorded it.
  returned: if there is one
  type: dict
rank:
  description: Rank of this node in the run.
  returned: if the run was started here
  type: int
generation:
  description: Which launch of the run it was.
  returned: if the run was started here
  type: int
launches:
  description: The launches before it that a lost node or a killed rank ended, with their C(cause).
  returned: if the run was started here
  type: list
nodes:
  description: Names of all nodes of the run, in order of rank.
  returned: if the run was started here
  type: list
script:
  description: Name of the person's script that the run is of; empty for one of Hearth's trainer.
  returned: if the run was started here
  type: str
since:
  description: When the run came to this state here (ISO 8601).
  returned: if the run was started here
  type: str
"""


class ActionModule(ActionBase):
    """Follows one node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the outcome of the run on this node."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        run, patience = options["run"], options.pop("patience")
        stream = NodeStream(self._connection, files={"metrics": None}, **options)
        node, screen = task_vars["inventory_hostname"], Screen(self._display)
        follower = Follower(node, run, stream, screen, patience)
        try:
            while not (outcome := follower.inspect()):
                pass
        finally:
            stream.close()
        return result | {"node": node} | follower.facts | outcome
