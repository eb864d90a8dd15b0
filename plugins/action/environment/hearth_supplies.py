"""Action plugin: download the nodes' missing packages to the controller, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.errors import SupplyError
from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import Screen
from hearth_controller.supply.extra import ExtraLock
from hearth_controller.supply.missing import supply

DOCUMENTATION = r"""
module: hearth_supplies
short_description: Fetch the packages that the nodes lack onto the controller
description:
  - Downloads the wheels of the packages that differ on any node, for the platforms of those nodes.
    A wheel that is here already is not fetched again.
  - Nothing of any node is touched. Meant to run once.
options:
  looks:
    description: What M(hearth_packages) found, by node.
    type: dict
    required: true
  requirements:
    description: Folder with the lock files.
    type: path
    required: true
  extra_lock:
    description: File with the exact versions of the packages that the inventory adds, if any.
    type: str
    default: ""
  cache:
    description: Folder of the controller for what is fetched.
    type: path
    required: true
  builds_from:
    description: Index for builds of a version, such as C(2.13.0+cpu).
    type: str
    required: true
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Download the files; return the `wheels` by node."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, options = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        screen = Screen(self._display)
        try:
            wheels = supply(
                options["looks"],
                Path(options["requirements"]),
                ExtraLock(Path(options["extra_lock"])),
                Path(options["cache"]),
                options["builds_from"],
                screen.progress,
            )
            return result | {"wheels": wheels}
        except SupplyError as error:
            return result | {"failed": True, "msg": str(error)}
        finally:
            screen.end()
