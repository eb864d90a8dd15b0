"""Action plugin: fetch a run's files from a node to the controller."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.base.paths import for_shell
from hearth_controller.runs.collect import collect, safe
from hearth_controller.runs.outcome import Outcome

DOCUMENTATION = r"""
module: hearth_collect
short_description: Bring a run's files from a node to the controller
description:
  - A file or folder that the node does not have is left out, so that a run that failed early
    gives what there is. What comes replaces the earlier copy in one rename.
options:
  workspace:
    description: Workspace of the node.
    type: str
    required: true
  into:
    description: Folder of the run on the controller.
    type: path
    required: true
  files:
    description: Files and folders; path in O(into), and path in the workspace.
    type: dict
  run:
    description: Name of the run whose files come here, instead of O(files).
    type: str
  answers:
    description: Outcomes of O(run) on its nodes, as M(hearth_follow) returns them.
    type: list
    elements: dict
"""


class ActionModule(ActionBase):
    """Fetches from one node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the names (in `into`) of the fetched files, `collected`."""
        result = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(
            argument_spec(DOCUMENTATION),
            mutually_exclusive=[("files", "run")],
            required_one_of=[("files", "run")],
            required_together=[("run", "answers")],
        )
        files, copies = options["files"], ()
        if options["run"]:
            node = task_vars["inventory_hostname"]
            outcome = Outcome.from_answers(options["answers"])
            files, copies = outcome.files(node, options["run"]), outcome.copies(node)
        if not files:
            return result | {"skipped": True, "msg": "this node has nothing of the run"}
        if self._task.check_mode:
            return result | {"skipped": True, "msg": "in check mode nothing is fetched"}
        entered = self._low_level_execute_command(
            f"cd {for_shell(options['workspace'])} && pwd", sudoable=False
        )
        if entered["rc"] != 0:
            return result | {"changed": False, "collected": []}
        workspace = entered["stdout"].strip()
        files = {here: f"{workspace}/{there}" for here, there in files.items()}
        changed, collected = collect(Path(options["into"]), files, self._fetch, copies)
        return result | {"changed": changed, "collected": collected}

    def _fetch(self, there: str, here: Path) -> bool:
        """Fetch a file or a folder; return whether the node has it and it is not empty."""
        quoted = shlex.quote(there)
        found = self._low_level_execute_command(
            f"find {quoted} -type f -print -quit | grep -q . && "
            f"find {quoted} -type f -printf '%P\\n'",
            sudoable=False,
        )
        if found["rc"] != 0:
            return False
        for name in found["stdout"].split("\n")[:-1] or [""]:
            if name and not safe(name):
                continue
            to = here / name
            to.parent.mkdir(parents=True, exist_ok=True)
            self._connection.fetch_file(f"{there}/{name}" if name else there, str(to))
        return True
