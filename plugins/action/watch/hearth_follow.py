"""Action plugin: follow a run on one node until it ends there.

Nothing here can disturb the run: Ctrl-C stops watching; training continues.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import Screen
from hearth_controller.watch.board import Board
from hearth_controller.watch.follow import Follower
from hearth_controller.watch.node_stream import NodeStream
from hearth_controller.watch.relay import RelayedStream, relay_of

DOCUMENTATION = r"""
module: hearth_follow
short_description: Show the progress of a run and wait for its end on this node
description:
  - Of all nodes of a play, one that has the metrics and answers shows the progress.
  - With C(HEARTH_FOLLOW_SOCKET) in the environment, nothing is shown; the program that listens
    there gets what changes (C(hearth watch)).
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
    description: >-
      Give the node up after this many seconds without any answer, unless others answer.
    type: float
    default: 180
"""


class ActionModule(ActionBase):
    """Follows one node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the outcome of the run on this `node`.

        `state` is `finished`, `stopped`, `failed`, `lost` or `unknown`; the last two come with a
        `message`. `gone` if the node answers but its supervisor is gone. `cause` as the supervisor
        recorded it. If the run was started here: `rank`, `generation` (number of the launch),
        `launches` before it that a lost node or killed rank ended, `nodes` in order of rank,
        `script` ('' for Hearth's trainer), and `since` when it is in this state (ISO 8601);
        `reached`, how far the metrics here reach (`hearth.record.stream.Progress`).
        """
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        run, patience = options["run"], options.pop("patience")
        node = task_vars["inventory_hostname"]
        relay, of_node = relay_of(node, run), {"files": {"metrics": None}, **options}
        stream = (
            RelayedStream(relay, self._connection, **of_node)
            if relay
            else NodeStream(self._connection, **of_node)
        )
        screen = relay or Screen(self._display)
        # The folder is that of the whole play, whose workers are the followers.
        board = Board(Path(C.DEFAULT_LOCAL_TMP) / f"following-{run}", node)
        follower = Follower(node, run, stream, screen, board, patience)
        try:
            while not (outcome := follower.inspect()):
                pass
        finally:
            stream.close()
        if relay:
            relay.outcome(outcome)
        return result | {"node": node} | follower.facts | outcome
