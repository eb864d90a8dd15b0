"""Action plugin: keep the request of a run in the run's folder on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.runs.collect import forget, keep

DOCUMENTATION = r"""
module: hearth_keep
short_description: Keep the request of a run on the controller
description:
  - Before any node starts the run, so that one that was begun is known here whatever happens next.
options:
  into:
    description: Folder of the run on the controller.
    type: path
    required: true
  text:
    description: Text of C(run.yml). Without it that file is removed, and the folder if it is empty.
    type: str
  job:
    description: Text of C(job.sbatch), for a run under Slurm.
    type: str
    default: ""
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return whether anything changed."""
        result = super().run(tmp, task_vars)
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        folder, text = Path(given["into"]), given["text"]
        try:
            changed = forget(folder) if text is None else keep(folder, text, given["job"])
            return result | {"changed": changed}
        except OSError as error:
            message = f"{error.filename} cannot be written: {error.strerror}"
            return result | {"failed": True, "msg": message}
