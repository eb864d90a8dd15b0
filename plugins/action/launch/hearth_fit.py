"""Action plugin: check that a run's model fits this node, before any download.

The verdict is that of `hearth.fit.misfits`; this plugin only connects it to Ansible.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase

from hearth.config import Settings
from hearth.config.shape import Shape
from hearth.fit.known import unknown
from hearth.fit.misfits import misfits
from hearth_controller.launch.capacities import rooms_of

DOCUMENTATION = r"""
module: hearth_fit
short_description: Whether the model of a run fits this node
description:
  - Works on the controller, from what M(hearth_memory) has left as C(launch_memory) on the nodes. A
    node that did not answer is judged elsewhere.
options:
  run:
    description: The run, as M(hearth_run) returns it.
    type: dict
    required: true
  nodes:
    description: Names of the nodes that are to train.
    type: list
    elements: str
    required: true
  shape:
    description: The sizes of its model; empty where nothing is known of them.
    type: dict
    required: true
"""

RETURN = r"""
findings:
  description: Why it does not fit and what would make it fit; empty with C(fit=warn).
  type: list
  returned: always
note:
  description: The same as a warning, with C(fit=warn); or that nothing is known of the model.
  type: str
  returned: if there is something to say
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the findings on this node."""
        result = super().run(tmp, task_vars) | {"changed": False, "findings": []}
        _, given = self.validate_argument_spec(
            {
                "run": {"type": "dict", "required": True},
                "nodes": {"type": "list", "elements": "str", "required": True},
                "shape": {"type": "dict", "required": True},
            }
        )
        own, names, run = task_vars["inventory_hostname"], given["nodes"], given["run"]
        if not given["shape"]:
            return result | ({"note": unknown(run["model"])} if own == names[0] else {})
        settings = Settings.model_validate(run["settings"])
        rooms = rooms_of(names, task_vars["hostvars"], "launch_memory", settings.memory_limit)
        found = misfits(run["model"], settings, Shape(**given["shape"]), rooms)
        if own not in found:
            return result
        if settings.fit == "warn":
            return result | {"note": f"WARNING: {found[own]}"}
        return result | {"findings": [found[own]]}
