"""Action plugin: record how a run ended, write its report and sum it up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.report.closing import close
from hearth_controller.runs.outcome import Outcome

DOCUMENTATION = r"""
module: hearth_summary
short_description: Write a run's report, and show its result and the next commands
description:
  - Keeps how the run ended on each node as C(ends.json) in its folder;
    C(python -m hearth_controller.report) writes the report anew from it.
  - A report that cannot be written is a warning and no failure, which would hide how the run ended.
options:
  run:
    description: Name of the run.
    type: str
    required: true
  folder:
    description: Folder of the run on the controller, with the files that were collected.
    type: path
    required: true
  answers:
    description: How the run ended on each node, as M(hearth_follow) returns it.
    type: list
    elements: dict
    required: true
  hearth:
    description: The C(hearth) command for the same inventory.
    type: str
    default: hearth
  well:
    description: States in which the run may be at the end; in any other the verdict is degraded.
    type: list
    elements: str
    default: [finished]
  electricity_price:
    description: Price of a kWh, for the cost of the run; 0 if it is not known.
    type: float
    default: 0
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the closing text, for the screen."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        if self._task.check_mode:
            return result | {"skipped": True, "msg": "in check mode nothing is written"}
        outcome = Outcome.from_answers(
            options["answers"], options["hearth"], options["electricity_price"]
        )
        if not outcome.known:
            return result | {"skipped": True, "msg": "no node knows the run"}
        closing = close(options["run"], Path(options["folder"]), outcome)
        if closing.warning:
            result["warnings"] = [closing.warning]
        degraded = outcome.state not in options["well"] or outcome.silent
        return result | {
            "changed": closing.changed,
            "say": f"\n{closing.text}\n",
            "answer": closing.facts,
            "verdict": "degraded" if degraded else "good",
        }
