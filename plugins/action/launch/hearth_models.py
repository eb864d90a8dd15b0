"""Action plugin: the table of presets, with the nodes that each preset fits.

The verdict is that of `hearth.fit`; this plugin only connects it to Ansible.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.fit.catalogue import describe_rooms, fitting_lines, fittings
from hearth_controller.base.options import argument_spec
from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.launch.answers import Inspection
from hearth_controller.launch.fit import candidates_of

DOCUMENTATION = r"""
module: hearth_models
short_description: Show the presets and the nodes that each of them fits
description:
  - Works on the controller. Meant to run once.
options:
  nodes:
    description: Names of the nodes, in order of rank.
    type: list
    elements: str
    required: true
  looks:
    description: Results of M(hearth_inspect), in the order of O(nodes).
    type: list
    elements: dict
    required: true
"""


class ActionModule(ActionBase):
    """Runs on the controller."""

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the table as text (`say`)."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, given = self.validate_argument_spec(argument_spec(DOCUMENTATION))
        ranks = candidates_of(
            {
                name: Inspection.from_facts(look["facts"])
                for name, look in zip(given["nodes"], given["looks"], strict=True)
                if look.get("facts")
            }
        )
        answering = {rank.node for rank in ranks}
        silent = [name for name in given["nodes"] if name not in answering]
        if not ranks:
            return result | {"failed": True, "msg": "no node has answered: are they on?"}
        found = fittings(ranks)
        lines = [*fitting_lines(found, ranks), "", *describe_rooms(ranks, TABLE_WIDTH)]
        if silent:
            lines.append(f"not answered: {', '.join(silent)}")
        text = "\n".join(f"  {line}".rstrip() for line in lines)
        return result | {"say": text, "answer": {"presets": [asdict(each) for each in found]}}
