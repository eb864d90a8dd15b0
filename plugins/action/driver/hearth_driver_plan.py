"""Action plugin: plan the driver of each machine. Runs once, on the controller."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.options import argument_spec
from hearth_controller.driver.decision import decide, shown
from hearth_controller.driver.packages import GpuMachine

DOCUMENTATION = r"""
module: hearth_driver_plan
short_description: Decide over the whole cluster which driver each machine gets
description:
  - Touches nothing; M(hearth_driver) has looked at the machines before.
options:
  machines:
    description:
      - "By name: C(look) from M(hearth_driver), and the options C(install), C(branch),
        C(repository) and C(url) of the role driver."
    type: dict
    required: true
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the `plans` by name, and the text to `say`."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        machines = [GpuMachine(name, **known) for name, known in given["machines"].items()]
        try:
            plans = decide(machines)
        except ValueError as error:
            return result | {"failed": True, "msg": str(error)}
        return result | {
            "plans": {name: asdict(plan) for name, plan in plans.items()},
            "say": shown(plans),
        }
