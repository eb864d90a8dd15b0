"""What is known of a node, and of all nodes together. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hearth.verify.verdict import Seen

Part = Literal["look", "facts", "packages", "code"]
"""A part of what is known, without which a check says nothing: see `Node.lacks`."""


@dataclass(frozen=True)
class Node:
    """What was found out about a node.

    `verify` is what the role of that name saw of it and of its peers. `look` are the facts of
    the module `hearth_doctor`; `packages`, `code` and `stages` are what the modules of provisioning
    say in check mode, the last by the name of the stage; `claims` is what others say of its
    address. `rootless` says why nothing was looked at that needs root.

    `alone`: all nodes are one computer, of whose system provisioning promises nothing. `over_ssh`:
    it was reached by a login. `lock` is its `python_lock`.
    """

    verify: Seen
    alone: bool = False
    over_ssh: bool = True
    lock: str = "auto"
    rootless: str = ""
    look: Mapping[str, Any] = field(default_factory=dict)
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
        """What its environment says of itself, see `hearth.verify.facts`."""
        return self.verify.facts

    @property
    def loopback(self) -> bool:
        """Whether its cluster address leads no further than this computer."""
        return self.look["card"]["name"] == "lo"

    @property
    def busy(self) -> str:
        """The run that has the node, or nothing."""
        return str(self.look.get("busy") or self.facts.get("busy") or "")

    def lacks(self, part: Part | None) -> str:
        """Return why a part is not known, or nothing."""
        if self.verify.gone:
            return "it does not answer"
        if part == "facts" and not self.verify.usable:
            said = next(iter(self.verify.findings), "its environment does not answer")
            return said.strip().splitlines()[-1]  # of a crash, what it says in the end
        if part in ("look", "packages", "code") and not getattr(self, part):
            return "it could not be looked at; playbooks/doctor.yml -v shows more"
        return ""


@dataclass(frozen=True)
class Cluster:
    """All nodes, in order of rank; `playbook` is the command that plays on the same inventory."""

    nodes: tuple[Node, ...]
    playbook: str = "ansible-playbook"

    @property
    def seen(self) -> list[Seen]:
        """What the role verify saw of the nodes."""
        return [node.verify for node in self.nodes]

    def others(self, node: Node) -> list[Node]:
        """Return the nodes but this one."""
        return [other for other in self.nodes if other.name != node.name]

    def stage(self, name: str) -> str:
        """Return the command that plays one stage of provisioning."""
        return f"{self.playbook} provision.yml --tags {name}"
