"""The nodes of an inventory: their ranks and addresses, with validation."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hearth.lend.terms import TERMS, faults
from hearth_controller.base.paths import as_typed
from hearth_controller.inventory.values import misfit

EXAMPLE = "inventory/homelab.example shows how it looks"

# Those of the example: no machine has an address of this network (RFC 5737).
_EXAMPLES = ipaddress.ip_network("192.0.2.0/24")
_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True)
class Node:
    """A machine of the cluster; `slurm_node` is its name in Slurm."""

    name: str
    rank: int
    address: str
    slurm_node: str


def unreadable(sources: Iterable[str]) -> list[str]:
    """Return a finding for each inventory source that does not exist or is no YAML.

    `sources` are files, folders and, with a comma, lists of hosts. Ansible skips the first two with
    a warning.
    """
    findings = []
    for source in (Path(each) for each in sources if "," not in each):
        if not source.exists():
            findings.append(f"{as_typed(source)}: there is no such inventory; {EXAMPLE}")
        for file in sorted(source.iterdir()) if source.is_dir() else [source]:
            if file.suffix in (".yml", ".yaml") and file.is_file():
                findings += _syntax_error(file)
    return findings


def _syntax_error(file: Path) -> list[str]:
    """Return a finding with the first line that is no valid YAML; none if the file is valid."""
    try:
        for _ in yaml.parse(file.read_bytes()):
            pass
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, why = f":{mark.line + 1}" if mark else "", getattr(error, "problem", None) or error
        return [f"{as_typed(file)}{line}: this is no YAML ({why}); correct it, {EXAMPLE}"]
    return []


def read_nodes(members: Mapping[str, Mapping[str, Any]]) -> tuple[list[Node], list[str]]:
    """Return the nodes in rank order, and the errors found.

    `members` are the hosts of the group `cluster` in the inventory's order, with their variables.
    """
    if not members:
        return [], [
            f"the inventory has no hosts in the group 'cluster'; add your machines, {EXAMPLE}"
        ]
    nodes, findings = [], []
    # If all nodes use loopback, they are on one computer; loopback for only some is a mistake.
    one_computer = on_one_computer(
        variables["cluster_address"]
        for variables in members.values()
        if "cluster_address" in variables
    )
    for position, (name, variables) in enumerate(members.items()):
        # The name becomes a host name, a part of paths and of ssh's command line.
        if not _NAME.fullmatch(name):
            findings.append(
                f"{name!r} is no host name; give it up to 253 letters, digits, '-', '_' and '.', "
                "at most 63 between two dots, none of them beginning or ending with '-'"
            )
        rank = variables.get("node_rank", position)
        if isinstance(rank, bool) or not str(rank).isdecimal():
            findings.append(f"{name}: node_rank is {rank!r}; a whole number from 0 is wanted")
            rank = position
        address = variables.get("cluster_address")
        if address is None:
            findings.append(
                f"{name}: cluster_address is missing; set the address that the other nodes reach "
                f"this one at, {EXAMPLE}"
            )
        elif reason := _unfit(address, one_computer, _names_its_nic(variables)):
            findings.append(f"{name}: cluster_address {str(address)!r} {reason}")
        # Types, such as a number here, are checked with the types of all options.
        if str(variables.get("hearth_nproc", 0)).startswith("-"):
            findings.append(
                f"{name}: hearth_nproc is {variables['hearth_nproc']}; a number of processes is "
                "wanted, or 0 for one on each GPU"
            )
        findings += [f"{name}: {fault}" for fault in _lending_faults(variables)]
        if str(variables.get("power_limit", 0)).startswith("-"):
            findings.append(
                f"{name}: power_limit is {variables['power_limit']}; the watts that each GPU may "
                "draw are wanted, or 0 to leave them alone"
            )
        slurm_node = str(variables.get("hearth_slurm_node") or name)
        nodes.append(Node(name, int(rank), str(address or ""), slurm_node))
    findings += _ranks(nodes) + _addresses(nodes)
    findings += _first_addresses(members, nodes)
    return sorted(nodes, key=lambda node: node.rank), findings


def _lending_faults(variables: Mapping[str, Any]) -> list[str]:
    """Return errors in a node's terms of lending, but for types, as of all options."""
    terms = {
        key: value
        for key in TERMS
        if (value := variables.get(f"lend_{key}")) is not None
        and not misfit(value, {"type": "float" if key == "after" else "str"})
    }
    return faults(terms)


def on_one_computer(addresses: Iterable[Any]) -> bool:
    """Return whether nodes with these addresses share one computer: all use its loopback."""
    parsed = [_parsed(address) for address in addresses]
    return all(address is None or address.is_loopback for address in parsed)


def far_apart(nodes: list[Node]) -> str:
    """Return a remark if the IPv4 addresses are not in one /24, as in most homes."""
    parsed = [(node.name, _parsed(node.address)) for node in nodes]
    fours = [(name, address) for name, address in parsed if address and address.version == 4]
    networks = {ipaddress.ip_network(f"{address}/24", strict=False) for _, address in fours}
    if len(networks) < 2 or all(address.is_loopback for _, address in fours):
        return ""
    each = ", ".join(f"{name} {address}" for name, address in fours)
    return (
        f"the cluster addresses are not in one /24 ({each}). Fine if the home's network is that "
        "wide; else the nodes do not reach each other directly"
    )


def _parsed(value: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(str(value))
    except ValueError:
        return None


def _names_its_nic(variables: Mapping[str, Any]) -> bool:
    return bool(variables.get("network_interface") or variables.get("network_mac"))


def _unfit(value: Any, one_computer: bool, nic_named: bool) -> str:
    """Return the reason why nodes cannot reach each other at an address, or ''."""
    address = _parsed(value)
    if address is None:
        return "is not an IP address"
    if address.is_loopback and not one_computer:
        return "means every machine itself; set the one that the other nodes reach"
    if address.is_multicast or address.is_unspecified:
        return "is an address that no machine can have"
    if address in _EXAMPLES:
        return "is the example's; set the machine's own, which `ip -brief address` shows on it"
    if address.is_link_local and address.version == 6:
        # Gloo sends it with the number of the sender's interface, which is wrong on the receiver
        # unless both have the same number there (measured: tests.bench.link_local).
        return (
            "is link-local, and means another machine on each interface; give the NIC an IPv4 or "
            "an fd00:: address (fe80::…%INTERFACE can be the ansible_host or first_address)"
        )
    if address.is_link_local and not nic_named:
        return (
            "is link-local: a machine gives itself one where no DHCP server answers; if it is that "
            "of a direct cable, name the cable's NIC by network_interface"
        )
    if str(address) != str(value):  # IPv6 has many spellings, and addresses are compared as text
        return f"has another spelling; write it {address}"
    return ""


def _ranks(nodes: list[Node]) -> list[str]:
    """Return errors about duplicate and missing ranks."""
    by_rank = _grouped((node.rank, node.name) for node in nodes)
    findings = [
        f"{finding}; give each its own node_rank (or none: then the order in the group counts)"
        for finding in _shared(by_rank, "rank")
    ]
    missing = sorted(set(range(len(nodes))) - by_rank.keys())
    if missing and len(by_rank) == len(nodes):
        findings.append(
            f"the ranks are {', '.join(map(str, sorted(by_rank)))}; {len(nodes)} nodes need the "
            f"ranks 0 to {len(nodes) - 1}"
        )
    return findings


def _addresses(nodes: list[Node]) -> list[str]:
    """Return errors about shared addresses and mixed address families."""
    parsed = [(_parsed(node.address), node.name) for node in nodes]
    by_address = _grouped((str(address), name) for address, name in parsed if address)
    families = _grouped((address.version, name) for address, name in parsed if address)
    findings = _shared(by_address, "cluster_address")
    if len(families) > 1:
        findings.append(
            f"the cluster addresses of {', '.join(families[4])} are IPv4, those of "
            f"{', '.join(families[6])} are IPv6; give all nodes the same family"
        )
    return findings


def _first_addresses(members: Mapping[str, Mapping[str, Any]], nodes: list[Node]) -> list[str]:
    """Return errors about a `first_address` that two machines share or another node owns."""
    cluster = {node.address: node.name for node in nodes}
    given = [
        (first, name)
        for name, variables in members.items()
        if (first := str(variables.get("first_address") or ""))
    ]
    taken = [
        f"{name}: first_address {first} is the cluster_address of {cluster[first]}; move {name} "
        f"first, and {cluster[first]}, which keeps the address that it has today until then, after "
        "it. Where the two swap, move one of them to a third address that is free before that"
        for first, name in given
        if cluster.get(first, name) != name
    ]
    return taken + _shared(_grouped(given), "first_address")


def _shared(names_by_value: Mapping[Any, list[str]], what: str) -> list[str]:
    """Return errors about values that several machines have."""
    return [
        f"{' and '.join(names)} have the same {what} {value}"
        for value, names in names_by_value.items()
        if len(names) > 1
    ]


def _grouped(pairs: Iterable[tuple[Any, str]]) -> dict[Any, list[str]]:
    """Return the names by key."""
    found: dict[Any, list[str]] = {}
    for key, name in pairs:
        found.setdefault(key, []).append(name)
    return found
