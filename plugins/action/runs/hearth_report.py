"""Action plugin: write the report page of a run from its collected files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.runs.outcome import Ends

DOCUMENTATION = r"""
module: hearth_report
short_description: Write the report of a run into its folder on the controller
description:
  - Also keeps how the run ended on each node, as C(ends.json) beside it, from which
    C(python -m hearth_controller.report) writes the report anew.
  - A report that cannot be written is a warning and no failure, which would hide how the run ended.
options:
  folder:
    description: Folder of the run on the controller.
    type: path
    required: true
  ends:
    description: How the run ended on each node, as M(hearth_follow) returns it, by node.
    type: dict
    required: true
  playbook:
    description: How to call C(ansible-playbook) for the same inventory.
    type: str
    default: ansible-playbook
  page:
    description: >-
      Whether there is a report; of a person's script no step and no setting is known that it could
      show.
    type: bool
    default: true
"""

RETURN = r"""
path:
  description: The report.
  returned: if there is one and it could be written
  type: str
"""

_ENDS = ("state", "cause", "message", "rank", "generation", "launches", "nodes")


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Write the run's outcome and its report."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(
            {
                "folder": {"type": "path", "required": True},
                "ends": {"type": "dict", "required": True},
                "playbook": {"type": "str", "default": "ansible-playbook"},
                "page": {"type": "bool", "default": True},
            }
        )
        if self._task.check_mode:
            return result | {"skipped": True, "msg": "in check mode nothing is written"}
        folder = Path(options["folder"])
        ends = {
            node: {word: end[word] for word in _ENDS if word in end}
            for node, end in options["ends"].items()
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            Ends(ends, options["playbook"]).write(folder)
            if not options["page"]:
                return result
            # Imported here, since the plotting library takes a second to load and may be missing.
            from hearth_controller.report.page import FILE, write_report

            earlier = (folder / FILE).read_bytes() if (folder / FILE).exists() else None
            path = write_report(folder)
            changed = path.read_bytes() != earlier
        except Exception as error:
            return result | {"warnings": [f"{folder}: no report could be written: {error}"]}
        return result | {"changed": changed, "path": str(path)}
