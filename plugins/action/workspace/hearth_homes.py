"""Action plugin: give nodes that share a home a workspace each, by a file of the inventory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars
from ansible.vars.plugins import get_vars_from_inventory_sources

from hearth.base.files import write_whole
from hearth_controller.base.options import argument_spec
from hearth_controller.base.paths import as_typed
from hearth_controller.inventory import homes

DOCUMENTATION = r"""
module: hearth_homes
short_description: Recognise nodes that share a home, and keep their workspaces apart
description:
  - Works on the controller, from what M(hearth_home) has found on all nodes. Meant to run once.
  - The settings go into a file of the inventory, so that every later command has them.
options:
  marks:
    description: Results of M(hearth_home) by node.
    type: dict
    required: true
  workspace:
    description: The workspace of every node as the inventory has it.
    type: str
    required: true
  shared:
    description: The folder that all nodes share for models and data, if the inventory names one.
    type: str
    default: ""
"""

_WORKSPACE = "hearth_workspace"


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return whether nodes are to be kept `apart`, and the folder that all then `shared`."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        workspace, shared = given["workspace"].rstrip("/"), given["shared"]
        nodes = homes.sharing(given["marks"])
        if not nodes:
            return result | {"apart": False, "shared": shared}
        inventory = task_vars["hostvars"]._inventory
        # pylint: disable-next=protected-access
        file = homes.file_of(inventory._sources)
        if why := self._obstacle(inventory, file):
            return result | {"failed": True, "msg": homes.refusal(nodes, workspace, why)}
        whole = not shared and nodes == list(task_vars["groups"]["cluster"])
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, homes.settings(workspace, whole))
        except OSError as error:
            why = f"{as_typed(file)} cannot be written ({error.strerror})"
            return result | {"failed": True, "msg": homes.refusal(nodes, workspace, why)}
        shared = workspace if whole else shared
        note = homes.note(nodes, workspace, shared, as_typed(file))
        return result | {"apart": True, "shared": shared, "changed": True, "note": note}

    def _obstacle(self, inventory: Any, file: Path | None) -> str:
        """Return why settings in `file` would not be the ones that count, or ''."""
        if _WORKSPACE in load_extra_vars(self._loader):
            return f"{_WORKSPACE} stands after -e"
        hosts = inventory.get_hosts("cluster")
        own = {name for host in hosts for name in host.get_vars()}
        # pylint: disable-next=protected-access
        own |= set(get_vars_from_inventory_sources(self._loader, inventory._sources, hosts, "all"))
        if _WORKSPACE in own:
            return f"{_WORKSPACE} is set for single nodes"
        return "" if file else "this inventory has no folder group_vars/cluster"
