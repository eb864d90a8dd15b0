"""Filter plugin: the hosts that `-e nodes=` chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleError

from hearth_controller.inventory.words import strangers

DOCUMENTATION = r"""
name: chosen_nodes
short_description: Hosts of a play, as -e nodes= chooses them
description:
  - For the keyword C(hosts), so that a play alone, too, refuses a name that is no node's.
options:
  _input:
    description: What C(-e nodes=) says, empty for all nodes.
    type: raw
    required: true
  groups:
    description: The groups of the inventory.
    type: dict
    required: true
"""


def chosen_nodes(nodes: str | Sequence[str], groups: Mapping[str, Sequence[str]]) -> Any:
    """Return the names of the chosen nodes, or the group of all if none is named."""
    names = nodes.split(",") if isinstance(nodes, str) else nodes
    chosen = [name.strip() for name in names if name.strip()]
    if findings := strangers(chosen, groups.get("cluster", [])):
        raise AnsibleError(findings[0])
    return chosen or "cluster"


class FilterModule:
    """The filters of this file."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"chosen_nodes": chosen_nodes}
