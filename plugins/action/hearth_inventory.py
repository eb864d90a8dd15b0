"""Action plugin: read the nodes from the inventory and say everything that is wrong with them.

Works on the controller alone; no machine is touched.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ansible import constants, context
from ansible.plugins.action import ActionBase

DOCUMENTATION = r"""
module: hearth_inventory
short_description: Nodes in rank order, and what is wrong with the inventory
description:
  - Rank is the position in the group C(cluster), unless a host sets C(node_rank).
  - What is wrong comes back as RV(findings) and does not fail the task (see M(hearth_verdict)).
options:
  runs:
    description: Folder of the controller that holds a folder a run.
    type: path
    required: true
  whole:
    description: Whether all nodes are wanted, so that C(--limit) is refused.
    type: bool
    default: false
"""

RETURN = r"""
nodes:
  description: C(name), C(rank) and C(address) of every node, in rank order.
  returned: always
  type: list
runs:
  description: The folder of runs, for the roles that come later.
  type: str
  returned: always
playbook:
  description: How to call C(ansible-playbook) for the same inventory.
  type: str
  returned: always
findings:
  description: What is wrong, one sentence each.
  returned: always
  type: list
"""

_EXAMPLE = "inventory/homelab.example shows how it looks"


@dataclass(frozen=True)
class Node:
    """A machine of the cluster."""

    name: str
    rank: int
    address: str


def read_nodes(members: Mapping[str, Mapping[str, Any]]) -> tuple[list[Node], list[str]]:
    """Return the nodes in rank order, and what is wrong with them.

    `members` are the hosts of the group `cluster` in the inventory's order, with their variables.
    """
    if not members:
        return [], [
            f"the inventory has no hosts in the group 'cluster'; add your machines, {_EXAMPLE}"
        ]
    nodes, findings = [], []
    for position, (name, variables) in enumerate(members.items()):
        rank = variables.get("node_rank", position)
        if isinstance(rank, bool) or not str(rank).isdecimal():
            findings.append(f"{name}: node_rank is {rank!r}; a whole number from 0 is wanted")
            rank = position
        address = variables.get("cluster_address")
        if address is None:
            findings.append(
                f"{name}: cluster_address is missing; set the address that the other nodes reach "
                f"this one at, {_EXAMPLE}"
            )
        elif not _is_address(address):
            findings.append(f"{name}: cluster_address {address!r} is not an IP address")
        nodes.append(Node(name, int(rank), str(address or "")))
    findings += _shared(nodes)
    return sorted(nodes, key=lambda node: node.rank), findings


def _is_address(value: Any) -> bool:
    """Return whether `value` is an address without a prefix length."""
    try:
        ipaddress.ip_address(str(value))
    except ValueError:
        return False
    return True


def _shared(nodes: list[Node]) -> list[str]:
    """Return what two nodes have in common that they must not, and which ranks are missing."""
    findings = []
    by_rank: dict[int, list[str]] = {}
    by_address: dict[str, list[str]] = {}
    for node in nodes:
        by_rank.setdefault(node.rank, []).append(node.name)
        if _is_address(node.address):
            by_address.setdefault(str(ipaddress.ip_address(node.address)), []).append(node.name)
    for rank, names in by_rank.items():
        if len(names) > 1:
            findings.append(
                f"{' and '.join(names)} have the same rank {rank}; give each its own node_rank "
                "(or none: then the order in the group counts)"
            )
    missing = sorted(set(range(len(nodes))) - by_rank.keys())
    if missing and len(by_rank) == len(nodes):
        findings.append(
            f"the ranks are {', '.join(map(str, sorted(by_rank)))}; {len(nodes)} nodes need the "
            f"ranks 0 to {len(nodes) - 1}"
        )
    for address, names in by_address.items():
        if len(names) > 1:
            findings.append(f"{' and '.join(names)} have the same cluster_address {address}")
    return findings


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return nodes and findings."""
        result = super().run(tmp, task_vars)
        _, arguments = self.validate_argument_spec(
            {
                "runs": {"type": "path", "required": True},
                "whole": {"type": "bool", "default": False},
            }
        )
        hostvars = task_vars["hostvars"]
        names = task_vars["groups"].get("cluster", [])
        nodes, findings = read_nodes({name: hostvars[name] for name in names})
        limit = context.CLIARGS.get("subset")
        if arguments["whole"] and limit:
            findings.append(
                f"--limit {limit}: a run takes all nodes of the inventory, since each waits for "
                "all others; to train on some, use an inventory that lists only those"
            )
        return result | {
            "changed": False,
            "nodes": [asdict(node) for node in nodes],
            "findings": findings,
            "runs": arguments["runs"],
            "playbook": self._playbook(),
        }

    @staticmethod
    def _playbook() -> str:
        """Return the command that plays on the same inventory."""
        sources = list(context.CLIARGS.get("inventory") or ())
        if sources == list(constants.DEFAULT_HOST_LIST):
            return "ansible-playbook"
        ways = [(os.path.relpath(source), source) for source in sources]
        return " ".join(
            ["ansible-playbook"]
            + [f"-i {whole if way.startswith('..') else way}" for way, whole in ways]
        )
