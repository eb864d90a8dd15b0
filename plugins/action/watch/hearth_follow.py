"""Action plugin: follow a run on one node until it ends there.

Nothing here can disturb the run: Ctrl-C stops watching; training continues.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth_controller.base.screen import Screen
from hearth_controller.watch.follow import Follower

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
  interval:
    description: Seconds between two looks.
    type: float
    default: 1
  patience:
    description: Seconds without any answer of the node after which it is given up.
    type: float
    default: 180
"""

RETURN = r"""
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

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the outcome of the run on this node."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(
            {
                "run": {"type": "str", "required": True},
                "workspace": {"type": "str", "required": True},
                "interval": {"type": "float", "default": 1},
                "patience": {"type": "float", "default": 180},
            }
        )
        node, screen = task_vars["inventory_hostname"], Screen(self._display)
        follower = Follower(node, options["run"], options["workspace"], self._ask, screen)
        while True:
            try:
                outcome = follower.inspect()
            except AnsibleConnectionFailure as error:
                outcome = follower.no_answer(str(error), options["patience"])
            if outcome:
                break
            time.sleep(options["interval"])
        if follower.draws:
            screen.end()
        return result | follower.facts | outcome

    def _ask(self, command: str) -> str:
        answer = self._low_level_execute_command(command, sudoable=False)
        if answer["rc"] != 0:
            raise AnsibleConnectionFailure(answer["stderr"] or f"status {answer['rc']}")
        return str(answer["stdout"])
