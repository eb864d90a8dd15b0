"""All checks, in the order in which they are shown. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hearth_controller.doctor import gpus, links, software, system
from hearth_controller.doctor.finding import Finding, not_checked
from hearth_controller.doctor.node import Cluster, Node, Part


@dataclass(frozen=True)
class Check:
    """A check: its `name`, how a node is examined, and the part that must be known for it."""

    name: str
    examine: Callable[[Node, Cluster], Finding]
    needs: Part | None = None

    def of(self, node: Node, cluster: Cluster) -> Finding:
        """Return what it says of a node; where a part is not known, that it was not checked."""
        if self.needs and (why := node.lacks(self.needs)):
            return not_checked(why)
        return self.examine(node, cluster)


HOME = (
    Check("battery", system.battery, "look"),
    Check("GPU shared", gpus.others, "look"),
    Check("desktop", gpus.desktop, "look"),
    Check("power cap", gpus.power_cap, "look"),
)
"""What a home does to its nodes beside training; train.yml names it too when it starts."""

CHECKS = (
    Check("login", system.login),
    Check("driver", gpus.driver, "look"),
    Check("Secure Boot", gpus.secure_boot, "look"),
    Check("torch and GPU", gpus.torch, "facts"),
    Check("versions", software.versions),
    Check("lock file", software.lock, "packages"),
    Check("code", software.code, "code"),
    Check("address", links.address, "look"),
    Check("duplicate", links.duplicate, "look"),
    Check("link", links.link, "facts"),
    Check("latency", links.latency, "facts"),
    Check("reach", links.reach, "facts"),
    Check("ports", links.ports, "facts"),
    Check("MTU", links.mtu, "look"),
    Check(
        "firewall",
        system.promised(
            "firewall", "lets the nodes in", "the other nodes are kept out", vital=True
        ),
    ),
    Check(
        "names",
        system.promised(
            "names", "mean the nodes", "a name may lead to another machine, or nowhere"
        ),
    ),
    Check(
        "NCCL",
        system.promised("nccl", "uses the right card", "NCCL by hand may take another card"),
    ),
    Check("clock", system.clock),
    Check("sleep", system.promised("power", "never", "a node asleep is lost to its run")),
    Check("disk", system.disk, "look"),
    Check("memory", system.memory, "look"),
    Check("identity", system.identity, "look"),
    Check("orphans", system.orphans, "look"),
    Check("leftovers", system.leftovers, "look"),
    Check("models", software.models, "look"),
    Check("data", software.data, "look"),
    *HOME,
)
"""Every check of doctor."""


def warnings(node: Node) -> list[str]:
    """Return a short sentence for each trouble that the home makes a node, as train.yml says it."""
    cluster = Cluster((node,))
    found = (check.of(node, cluster) for check in HOME)
    return [
        f"{finding.seen}: {finding.why} ({finding.fix})"
        for finding in found
        if finding.outcome in ("degraded", "broken")
    ]
