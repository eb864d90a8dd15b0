"""The facts about a node and about the whole cluster. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hearth.plan.slow_links import SlowLinks
from hearth.record.events import StepEvent, event_in

Part = Literal["inspection", "facts", "packages", "code"]
"""A group of facts that a check may need, see `ExaminedNode.lacks`."""


@dataclass(frozen=True)
class Observation:
    """Observations of a node. `gone` is the reason if the node could not be examined.

    `facts` are those of `hearth.node.facts`, `talk` those of `hearth.node.links`.
    """

    name: str
    rank: int
    address: str
    gone: str = ""
    findings: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    talk: Mapping[str, Any] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """Whether the node can take part in anything."""
        return not self.gone and not self.findings and bool(self.facts)


@dataclass(frozen=True)
class ExaminedNode:
    """The facts about a node.

    `verify` is the result of the role verify for it and its peers. `inspection` holds the facts of
    the module `hearth_examine`; `packages`, `code` and `stages` (by stage name) are the results of
    the provisioning modules in check mode; `claims` holds the other nodes' records of its address.
    `rootless` is the reason why checks that need root were skipped.

    `alone`: all nodes are one computer, whose system provisioning leaves unchanged. `over_ssh`:
    it was reached by a login. `lock` is its `python_lock`, `power_limit` that of the inventory, in
    watts, 0 for none.
    """

    verify: Observation
    alone: bool = False
    over_ssh: bool = True
    lock: str = "auto"
    power_limit: int = 0
    rootless: str = ""
    inspection: Mapping[str, Any] = field(default_factory=dict)
    packages: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.verify.name

    @property
    def facts(self) -> Mapping[str, Any]:
        """The facts reported by its environment, see `hearth.node.facts`."""
        return self.verify.facts

    @property
    def loopback(self) -> bool:
        """Whether its cluster address is on the loopback interface."""
        return self.inspection["card"]["name"] == "lo"

    @property
    def busy(self) -> str:
        """The run that occupies the node, or ''."""
        return str(self.inspection.get("busy") or self.facts.get("busy") or "")

    @property
    def network(self) -> Mapping[str, Any]:
        """Its view of the network, with the machines that claim addresses; {} if not known."""
        seen = self.inspection.get("network") or self.facts.get("network")
        return {**seen, **self.claims} if seen else {}

    @property
    def slow_links(self) -> SlowLinks | None:
        """The links that hold up the run that occupies the node."""
        found = {"kind": "step", "step": 0, "slow_links": self.inspection.get("slow_links")}
        step = event_in(json.dumps(found)) if self.busy else None
        return SlowLinks.from_record(step.slow_links) if isinstance(step, StepEvent) else None

    def lacks(self, part: Part | None) -> str:
        """Return the reason why a group of facts is missing, or ''."""
        if self.verify.gone:
            return "it does not answer"
        if part == "facts" and not self.verify.usable:
            reason = next(iter(self.verify.findings), "its environment does not answer")
            return reason.strip().splitlines()[-1]  # of a traceback, the last line
        if part in ("inspection", "packages", "code") and not getattr(self, part):
            return "it could not be looked at; `hearth doctor -v` shows more"
        return ""


@dataclass(frozen=True)
class NodeGroup:
    """All nodes of a cluster, in order of rank; `hearth` is the command for the same inventory."""

    nodes: tuple[ExaminedNode, ...]
    hearth: str = "hearth"

    @property
    def observations(self) -> list[Observation]:
        """The results of the role verify for all nodes."""
        return [node.verify for node in self.nodes]

    def others(self, node: ExaminedNode) -> list[ExaminedNode]:
        """Return all nodes except this one."""
        return [other for other in self.nodes if other.name != node.name]

    def stage(self, name: str) -> str:
        """Return the command that plays one stage of provisioning."""
        return f"{self.hearth} provision --tags {name}"
