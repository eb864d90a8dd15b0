"""All checks, in display order. Pure."""

from __future__ import annotations

from hearth_controller.doctor import gpus, links, software, system
from hearth_controller.doctor.finding import Check
from hearth_controller.doctor.node import Cluster, ExaminedNode

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


def warnings(node: ExaminedNode) -> list[str]:
    """Return a short sentence for each problem that the checks of a home find on a node."""
    cluster = Cluster((node,))
    found = (check.of(node, cluster) for check in CHECKS if check.home)
    return [
        f"{finding.seen}: {finding.why} ({finding.fix})"
        for finding in found
        if finding.outcome in ("degraded", "broken")
    ]
