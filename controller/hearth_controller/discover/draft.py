"""The draft of an inventory: its nodes in order of rank, with their variables. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any

from hearth.base.nvidia import FLOOR, major
from hearth.base.systems import unknown_architecture, unknown_os
from hearth_controller.discover.choice import AddressChoice, chosen, names, network_of
from hearth_controller.discover.machine import Machine, Route
from hearth_controller.inventory.nodes import read_nodes


@dataclass(frozen=True)
class NodeDraft:
    """A node: its name, machine and chosen address, and its variables in hosts.yml.

    `remarks` are sentences for people, without the name in front.
    """

    name: str
    machine: Machine
    choice: AddressChoice
    variables: dict[str, Any]
    remarks: tuple[str, ...]

    @property
    def address(self) -> str:
        """Its cluster address."""
        return str(self.variables["cluster_address"])


@dataclass(frozen=True)
class Draft:
    """Nodes in order of rank, and the variables of all of them."""

    nodes: Sequence[NodeDraft]
    variables: dict[str, Any]

    @property
    def passwords(self) -> str:
        """The options of ansible-playbook that ask for the passwords that the nodes want."""
        far = [node.machine for node in self.nodes if node.machine.login != "local"]
        asks = "k" * any(machine.login != "key" for machine in far)
        users = {(self.variables | node.variables)["ansible_user"] for node in self.nodes}
        becomes = "K" * (users != {"root"})
        return f"-{asks}{becomes}" if asks or becomes else ""

    def findings(self) -> list[str]:
        """Return errors that the plays would find in the nodes."""
        return read_nodes({node.name: node.variables for node in self.nodes})[1]


def draft(
    machines: Sequence[Machine],
    mode: str,
    network: IPv4Network | None,
    routes: Mapping[str, Route | None],
) -> Draft:
    """Return the draft for machines in order of rank.

    `mode` is that of the role network; `routes` are those that ssh takes to the cluster addresses.
    """
    choices = chosen(machines, network)
    users = Counter(each.route.user for each in machines if each.login != "local")
    everyone = users.most_common(1)[0][0] if users else machines[0].route.user
    nodes = []
    for name, machine, choice in zip(names(machines), machines, choices, strict=True):
        variables = {"cluster_address": choice.address, **_way(machine, choice.address)}
        variables |= _login(machine, everyone, routes.get(choice.address))
        remarks = tuple(_remarks(name, machine, choice))
        nodes.append(NodeDraft(name, machine, choice, variables, remarks))
    return Draft(nodes, {"ansible_user": everyone, "network_mode": mode} | _driver(machines))


def _way(machine: Machine, address: str) -> dict[str, Any]:
    """Return the variable for SSH if that takes another network than training."""
    held = {held.address: held for _, held in machine.facts.held()} if machine.facts else {}
    at = machine.reached_at
    apart = at in held and network_of(held[at]) != network_of(held[address])
    return {"ansible_host": at} if apart else {}


def _login(machine: Machine, everyone: str, direct: Route | None) -> dict[str, Any]:
    """Return the variables for a login that differs from everyone's, and from ssh's defaults."""
    own = {"ansible_user": machine.route.user} if machine.route.user != everyone else {}
    if machine.login == "local":
        return {"ansible_connection": "local"} | own
    route, plain = machine.route.options, direct.options if direct else {}
    differs = {name for name, value in route.items() if plain.get(name) != value}
    if machine.route.port != (direct.port if direct else 22):
        own["ansible_port"] = machine.route.port
    if "identityfile" in differs:
        own["ansible_ssh_private_key_file"] = route["identityfile"]
    for name, option in (("proxyjump", "ProxyJump"), ("proxycommand", "ProxyCommand")):
        if name in differs and route[name] != "none":
            own["ansible_ssh_extra_args"] = f"-o {shlex.quote(f'{option}={route[name]}')}"
    return own


def _driver(machines: Sequence[Machine]) -> dict[str, Any]:
    """Return the option for NVIDIA's repository if a machine with Debian needs a driver."""
    needs = any(
        each.facts.gpus
        and each.facts.release["id"] == "debian"
        and major(each.facts.driver) < FLOOR
        for each in machines
        if each.facts
    )
    return {"driver_repo": "nvidia"} if needs else {}


def _remarks(name: str, machine: Machine, choice: AddressChoice) -> Iterator[str]:
    """Yield what a person should know about a node before provisioning."""
    facts = machine.facts
    if facts is None:
        yield f"{machine.trouble}. Nothing else is known of it; provision names it {name}"
        return
    if choice.why:
        yield choice.why
    yield from filter(None, (unknown_os(facts.release), unknown_architecture(facts.arch)))
    if not facts.sudo:
        yield f"{facts.user} is in none of the groups sudo, wheel, admin; provision needs sudo"
    if choice.nic and choice.nic.wireless:
        yield "is on Wi-Fi; a cable makes training over several machines much faster"
    if facts.battery:
        yield "is a laptop; provision keeps it awake, also with its lid closed (power_keep_awake)"
    if name.lower() != facts.hostname.partition(".")[0].lower():
        yield f"its host name {facts.hostname} becomes {name} (names_set_hostname: false keeps it)"
