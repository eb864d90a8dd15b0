"""The results of all checks as one machine-readable object with a verdict. Pure.

The schema of the object is `docs/doctor.schema.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hearth_controller.base.verdict import overall
from hearth_controller.doctor.checks import CHECKS, Check
from hearth_controller.doctor.node import Cluster

_BY_ROOT = frozenset({"names", "time", "power", "firewall", "nccl"})
"""Stages of provisioning whose repair needs root."""


def examine(
    cluster: Cluster,
    time: str,
    mended: Mapping[str, Sequence[str]],
    unmended: Mapping[str, Sequence[str]],
    checks: Sequence[Check] = CHECKS,
) -> dict[str, Any]:
    """Return the result object.

    `time` is now (ISO 8601), `mended` holds the repairs by node since the previous inspection, and
    `unmended` the intended repairs of nodes that did not complete them.
    """
    found = []
    for check in checks:
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
    """Return by node the repairs of `-e fix=true`, without duplicates."""
    found: dict[str, list[str]] = {name: [] for name in examined["nodes"]}
    for each in examined["checks"]:
        if each["mends"] and each["mends"] not in found[each["node"]]:
            found[each["node"]].append(each["mends"])
    return found


def pairs(cluster: Cluster) -> list[dict[str, Any]]:
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
