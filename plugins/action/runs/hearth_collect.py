"""Action plugin: fetch a run's files from a node to the controller."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

from hearth.record.send import NOT_SENT
from hearth_controller.base.node_program import NodeProgram
from hearth_controller.base.options import argument_spec
from hearth_controller.runs.collect import collect
from hearth_controller.runs.outcome import Outcome

_PROGRAM = resources.files("hearth.record").joinpath("send.py").read_text(encoding="utf-8")

DOCUMENTATION = r"""
module: hearth_collect
short_description: Bring a run's files from a node to the controller
description:
  - A file or folder that the node does not have is left out, so that a run that failed early
    gives what there is. What comes replaces the earlier copy in one rename.
  - Files that could not be brought are a note and no failure, which would hide how the run ended.
options:
  workspace:
    description: Workspace of the node.
    type: str
    required: true
  into:
    description: Folder of the run on the controller.
    type: path
    required: true
  run:
    description: Name of the run.
    type: str
    required: true
  python:
    description: A Python of the node, which needs no packages; C(python3) if it is missing.
    type: str
    default: python3
  answers:
    description: >-
      Outcomes of O(run) on its nodes, as M(hearth_follow) returns them; they tell which files a
      node has.
    type: list
    elements: dict
  files:
    description: >-
      Files or folders of O(workspace) instead, by their name in O(into). One that cannot be
      brought whole is a failure.
    type: dict
"""


class ActionModule(ActionBase):
    """Fetches from one node."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the names (in `into`) of the fetched files, `collected`."""
        result = super().run(tmp, task_vars)
        _, options = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        files, copies = options["files"], []
        if files is None:
            node = task_vars["inventory_hostname"]
            outcome = Outcome.from_answers(options["answers"])
            files, copies = outcome.files(node, options["run"]), outcome.copies(node)
        if not files:
            return result | {"skipped": True, "msg": "this node has nothing of the run"}
        if self._task.check_mode:
            return result | {"skipped": True, "msg": "in check mode nothing is fetched"}
        request = {"workspace": options["workspace"], "files": files}
        program = NodeProgram(self._connection, options["python"], _PROGRAM, request)
        try:
            changed, collected, why = collect(Path(options["into"]), files, program, copies)
        finally:
            said = program.close()
        if not program.begun:
            raise AnsibleConnectionFailure((said or [why])[-1])
        result |= {"changed": changed, "collected": collected}
        lacks = [line for line in said if line.startswith(NOT_SENT)]
        lacks += [f"the others were not brought: {'; '.join([why, *said[-1:]])}"] if why else []
        if options["files"] and (lacks or {*files} - {*collected}):
            return result | {"failed": True, "msg": "\n".join(lacks or ["it is gone"])}
        if options["files"]:
            result["answer"] = {"files": [str(Path(options["into"], name)) for name in collected]}
        return result | ({"note": "\n".join(lacks)} if lacks else {})
