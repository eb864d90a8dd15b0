"""All checks, in display order. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hearth_controller.doctor import gpus, links, software, system
from hearth_controller.doctor.finding import Finding, not_checked
from hearth_controller.doctor.node import Cluster, ExaminedNode, Part


@dataclass(frozen=True)
class Check:
    """A check: its `name`, the function that examines a node, and the facts that it needs."""

    name: str
    examine: Callable[[ExaminedNode, Cluster], Finding]
    needs: Part | None = None

    def of(self, node: ExaminedNode, cluster: Cluster) -> Finding:
        """Check a node; the finding is `not checked` if the needed facts are missing."""
        if self.needs and (why := node.lacks(self.needs)):
            return not_checked(why)
        return self.examine(node, cluster)


HOME = (
    Check("battery", system.battery, "inspection"),
    Check("GPU shared", gpus.others, "inspection"),
    Check("desktop", gpus.desktop, "inspection"),
    Check("power cap", gpus.power_cap, "inspection"),
)
"""Checks for side effects of a home, which train.yml also reports at its start."""

CHECKS = (
    Check("login", system.login),
    Check("driver", gpus.driver, "inspection"),
    Check("Secure Boot", gpus.secure_boot, "inspection"),
    Check("torch and GPU", gpus.torch, "facts"),
    Check("versions", software.versions),
    Check("lock file", software.lock, "packages"),
    Check("code", software.code, "code"),
    Check("address", links.address, "inspection"),
    Check("duplicate", links.duplicate, "inspection"),
    Check("link", links.link, "facts"),
    Check("latency", links.latency, "facts"),
    Check("reach", links.reach, "facts"),
    Check("MTU", links.mtu, "inspection"),
    Check("firewall", system.firewall),
    Check("names", system.names),
    Check("NCCL", system.nccl),
    Check("clock", system.clock),
    Check("sleep", system.sleep),
    Check("disk", system.disk, "inspection"),
    Check("memory", system.memory, "inspection"),
    Check("identity", system.identity, "inspection"),
    Check("orphans", system.orphans, "inspection"),
    Check("leftovers", system.leftovers, "inspection"),
    Check("models", software.models, "inspection"),
    Check("data", software.data, "inspection"),
    *HOME,
)
"""Every check of doctor."""


def warnings(node: ExaminedNode) -> list[str]:
    """Return a short sentence for each problem that the `HOME` checks find on a node."""
    cluster = Cluster((node,))
    found = (check.of(node, cluster) for check in HOME)
    return [
        f"{finding.seen}: {finding.why} ({finding.fix})"
        for finding in found
        if finding.outcome in ("degraded", "broken")
    ]
