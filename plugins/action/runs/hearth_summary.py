"""Action plugin: the closing text of a run, from the files that were collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.paths import as_typed
from hearth_controller.report.repeat import variable
from hearth_controller.runs.story import Story, read_lines
from hearth_controller.runs.summary import script_or_model, script_summary, summary

DOCUMENTATION = r"""
module: hearth_summary
short_description: What a run changed, where its files are and what to do next
options:
  run:
    description: Name of the run.
    type: str
    required: true
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
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the closing text, for the screen."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(
            {
                "run": {"type": "str", "required": True},
                "folder": {"type": "path", "required": True},
                "ends": {"type": "dict", "required": True},
                "playbook": {"type": "str", "default": "ansible-playbook"},
            }
        )
        folder = Path(options["folder"])
        files = [path.name for path in folder.glob("*")]
        common = (options["ends"], as_typed(folder), files, options["playbook"])
        script, model = script_or_model(folder / "run.yml")
        if script:
            text = script_summary(script, *common)
        else:
            story = Story.of(read_lines(folder / "metrics.jsonl"))
            text = summary(options["run"], variable("model", model), story, *common)
        return result | {"say": f"\n{text}\n"}
