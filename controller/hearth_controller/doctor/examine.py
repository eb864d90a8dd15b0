"""The diagnosis of a cluster: from its nodes' answers to one machine-readable object and a table.

The schema of the object is `docs/doctor.schema.json`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from hearth_controller.base.screen import TABLE_WIDTH
from hearth_controller.base.verdict import overall
from hearth_controller.doctor import gpus, links, software, system
from hearth_controller.doctor.finding import Check
from hearth_controller.doctor.node import ExaminedNode, NodeGroup, Observation
from hearth_controller.doctor.table import doctor_lines
from hearth_controller.inventory.unreachable import describe_failure

CHECKS = sorted(
    (
        each
        for module in (system, gpus, links, software)
        for each in vars(module).values()
        if isinstance(each, Check)
    ),
    key=lambda check: check.home,
)
"""Every check of doctor: all that these modules declare, those of a home last."""

_BY_ROOT = frozenset({"names", "time", "power", "firewall", "nccl", "power_limit"})
"""Stages of provisioning whose repair needs root."""


def examine(
    cluster: NodeGroup,
    time: str,
    mended: Mapping[str, Sequence[str]],
    unmended: Mapping[str, Sequence[str]],
) -> dict[str, Any]:
    """Return the result object.

    `time` is now (ISO 8601), `mended` holds the repairs by node since the previous inspection, and
    `unmended` the intended repairs of nodes that did not complete them.
    """
    found = []
    for check in CHECKS:
        for node in cluster.nodes:
            finding = check.of(node, cluster)
            # Do not repair a node during a run, or without root if the repair needs it.
            if node.busy or (node.rootless and finding.mends in _BY_ROOT):
                finding = replace(finding, mends="")
            found.append({"check": check.name, "node": node.name, **asdict(finding)})
    broken, degraded = (
        [
            f"{each['node']}: {each['check']}: {each['seen']}"
            for each in found
            if each["outcome"] == bad
        ]
        for bad in ("broken", "degraded")
    )
    return {
        "time": time,
        "verdict": overall(broken, degraded),
        "reasons": broken + degraded,
        "nodes": [node.name for node in cluster.nodes],
        "checks": found,
        "pairs": pairs(cluster),
        "mended": {name: list(what) for name, what in mended.items() if what},
        "unmended": {name: list(what) for name, what in unmended.items() if what},
    }


def mends(examined: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return by node the repairs of `-e fix=on`, without duplicates."""
    found: dict[str, list[str]] = {name: [] for name in examined["nodes"]}
    for each in examined["checks"]:
        if each["mends"] and each["mends"] not in found[each["node"]]:
            found[each["node"]].append(each["mends"])
    return found


def pairs(cluster: NodeGroup) -> list[dict[str, Any]]:
    """Return latency and bandwidth of each ordered pair of nodes; None if not measured."""
    return [
        {
            "from": node.name,
            "to": other.name,
            "milliseconds": node.verify.talk.get("milliseconds", {}).get(other.name),
            "mbit": node.verify.talk.get("mbit", {}).get(other.name),
        }
        for node in cluster.nodes
        for other in cluster.others(node)
    ]


def node_of(
    verified: Observation,
    answers: Mapping[str, Mapping[str, Any]],
    one_computer: bool = False,
    connection: str | None = None,
    lock: str = "auto",
    power_limit: int = 0,
) -> ExaminedNode:
    """Return all facts about a node.

    `answers` are the results of its modules, some empty: `look`, `claims`, `packages`, the stages
    `plain` and `rooted` (without and with root), and `root`, which tried to become root.
    `one_computer` is whether all nodes share one. The others are its variables
    `ansible_connection`, `python_lock` and `power_limit`.
    """
    plain, rooted = (answers.get(word, {}).get("stages", {}) for word in ("plain", "rooted"))
    root = answers.get("root", {})
    return ExaminedNode(
        verify=verified,
        alone=one_computer,
        over_ssh=connection not in ("local", "ansible.builtin.local"),
        lock=str(lock),
        power_limit=0 if one_computer else power_limit,
        rootless=describe_failure(root) if root.get("failed") else "",
        inspection=answers.get("look", {}).get("facts", {}),
        packages=_complete(answers.get("packages", {}), "kind"),
        code=_complete(plain.get("workspace", {}), "differing"),
        stages={**plain, **rooted},
        claims=answers.get("claims", {}).get("facts", {}),
    )


def _complete(result: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a module's result, or an empty mapping if it failed or did not run."""
    return result if key in result else {}


def show(
    cluster: NodeGroup, mending: Mapping[str, Sequence[str]], done: Collection[str]
) -> dict[str, Any]:
    """Return the table as text and as data, and the possible repairs.

    `mending` are by node the repairs that were due; the nodes in `done` completed theirs.
    """
    mended, unmended = (
        {name: what for name, what in mending.items() if (name in done) is whether}
        for whether in (True, False)
    )
    now = datetime.now(UTC).isoformat(timespec="seconds")
    examined = examine(cluster, now, mended, unmended)
    text = "\n".join(f"  {line}".rstrip() for line in doctor_lines(examined, TABLE_WIDTH))
    return {"say": text, "answer": examined, "mends": mends(examined)}


def warnings(node: ExaminedNode) -> list[str]:
    """Return a short sentence for each problem that the checks of a home find on a node."""
    cluster = NodeGroup((node,))
    found = (check.of(node, cluster) for check in CHECKS if check.home)
    return [
        f"{finding.seen}: {finding.why} ({finding.fix})"
        for finding in found
        if finding.outcome in ("degraded", "broken")
    ]
