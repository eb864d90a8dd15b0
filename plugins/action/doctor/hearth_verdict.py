"""Action plugin: show the findings of all nodes together and stop if there are any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.inventory.unreachable import told_by

DOCUMENTATION = r"""
module: hearth_verdict
short_description: Fail with the findings of all nodes, if there are any
description:
  - Looks at the registered results of earlier tasks. A node that could not be reached, or that
    failed and left the play, is a finding too.
  - Meant to run once.
options:
  of:
    description: Names of the registered results.
    type: list
    elements: str
    required: true
  nodes:
    description: Nodes to look at; without any, the results of the controller are.
    type: list
    elements: str
    default: []
  same:
    description: Facts that must be equal on all nodes.
    type: list
    elements: str
    default: []
  distinct:
    description: Facts that no two nodes may have in common.
    type: list
    elements: str
    default: []
  then:
    description: Last line of the message, what the findings mean for the user.
    type: str
    default: ""
  without:
    description: Whether C(-e nodes) can leave a node out. Then the message ends with how, if some
      nodes cannot be reached and others can.
    type: bool
    default: false
"""


def findings_of(results: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the findings of one node's results, each once."""
    findings = []
    for result in results:
        if result.get("unreachable"):
            findings.append(f"cannot be reached: {told_by(result)}")
        elif result.get("failed") and not result.get("findings"):
            findings.append(told_by(result) or "failed without saying why")
        findings += result.get("findings", [])
    return list(dict.fromkeys(findings))


def differing(facts: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return a finding for each fact of `names` that differs between nodes.

    `facts` are by node; a node that does not have the fact is left out.
    """
    findings = []
    for name in names:
        values = {node: known[name] for node, known in facts.items() if name in known}
        if len(set(map(str, values.values()))) > 1:
            each = ", ".join(f"{node} {value}" for node, value in values.items())
            findings.append(f"{name} is not the same on all nodes: {each}")
    return findings


def shared(facts: Mapping[str, Mapping[str, Any]], names: Iterable[str]) -> list[str]:
    """Return a finding for each fact of `names` whose value several nodes share.

    A node that does not have the fact, or has it empty, is left out.
    """
    findings = []
    for name in names:
        nodes: dict[str, list[str]] = {}
        for node, known in facts.items():
            nodes.setdefault(str(known.get(name) or node), []).append(node)
        findings += [
            f"{' and '.join(alike)} have the same {name} {value}: one machine under two names, or "
            "a copied disk"
            for value, alike in nodes.items()
            if len(alike) > 1
        ]
    return findings


def way_out(results: Mapping[str, Iterable[Mapping[str, Any]]]) -> str:
    """Return the advice to continue without the unreachable nodes, or ''.

    `results` are by node. There is no advice if all nodes are reachable, or none.
    """
    away = [node for node, of in results.items() if any(each.get("unreachable") for each in of)]
    there = [node for node in results if node not in away]
    if not away or not there:
        return ""
    return f"To go on without {', '.join(away)}: -e nodes={','.join(there)}"


def as_message(by_node: Mapping[str, list[str]], common: list[str], then: str) -> str:
    """Return all findings as one text; nodes with equal findings are named together."""
    lines = list(common)
    for findings in dict.fromkeys(tuple(found) for found in by_node.values() if found):
        nodes = ", ".join(node for node, found in by_node.items() if tuple(found) == findings)
        lines += [f"{nodes}: {finding}" for finding in findings]
    return "\n".join([*lines, *([then] if then else [])])


class ActionModule(ActionBase):
    """Runs on the controller."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return success, or failure with the whole message."""
        result = super().run(tmp, task_vars) | {"changed": False}
        _, arguments = self.validate_argument_spec(
            {
                "of": {"type": "list", "elements": "str", "required": True},
                "nodes": {"type": "list", "elements": "str", "default": []},
                "same": {"type": "list", "elements": "str", "default": []},
                "distinct": {"type": "list", "elements": "str", "default": []},
                "then": {"type": "str", "default": ""},
                "without": {"type": "bool", "default": False},
            }
        )
        of, hostvars = arguments["of"], task_vars["hostvars"]
        common: list[str] = []
        by_node: dict[str, list[str]] = {}
        facts: dict[str, dict[str, Any]] = {}
        in_play: dict[str, list[Mapping[str, Any]]] = {}
        if not arguments["nodes"]:
            common = findings_of(task_vars[name] for name in of if name in task_vars)
        for node in arguments["nodes"]:
            results = [hostvars[node][name] for name in of if name in hostvars[node]]
            if node in task_vars["ansible_play_hosts"]:
                in_play[node] = results
                by_node[node] = [said.removeprefix(f"{node}: ") for said in findings_of(results)]
            else:
                by_node[node] = ["failed, see above"]
            facts[node] = {}
            for each in results:
                facts[node] |= each.get("facts", {})
        common += differing(facts, arguments["same"]) + shared(facts, arguments["distinct"])
        if common or any(by_node.values()):
            last = [arguments["then"], way_out(in_play) if arguments["without"] else ""]
            then = "\n".join(filter(None, last))
            result |= {"failed": True, "msg": as_message(by_node, common, then)}
        return result
