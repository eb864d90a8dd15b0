"""Action plugin: the current state of runs and nodes, for the screen and for programs.

The evaluation is that of `hearth_controller.runs.status`; this plugin only connects it to Ansible.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.inventory.unreachable import describe_failure
from hearth_controller.runs.digests import damage, digests_of, observed_runs
from hearth_controller.runs.status import status
from hearth_controller.runs.status_table import status_lines

DOCUMENTATION = r"""
module: hearth_status
short_description: Show how runs and nodes are doing now
description:
  - Works on the controller, from what M(hearth_runs) and M(hearth_examine) have left as
    C(runs_look) and C(status_health) on the nodes. Meant to run once.
options:
  nodes:
    description: Names of the nodes, in order of rank.
    type: list
    elements: str
    required: true
  electricity_price:
    description: Price of a kWh, for the cost of runs; 0 if it is not known.
    type: float
    default: 0
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the tables (`say`), and the same as data (`answer`)."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        known = task_vars["hostvars"]
        digests = digests_of(given["nodes"], known)
        seen = status(
            observed_runs(digests),
            {name: known[name].get("status_health", {}).get("facts") for name in given["nodes"]},
            {
                name: describe_failure(known[name].get("runs_look", {}))
                or "failed without saying why"
                for name, answer in digests.items()
                if answer is None
            },
            datetime.now(UTC).isoformat(timespec="seconds"),
            given["electricity_price"],
            damage(digests),
        )
        lines = [f"  {line}".rstrip() for line in status_lines(seen, TABLE_WIDTH)]
        return result | {"say": "\n".join(lines), "answer": seen}
