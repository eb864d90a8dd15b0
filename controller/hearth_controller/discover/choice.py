"""Choose each machine's address, rank and name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from hearth.base.nics import Held, Nic
from hearth_controller.discover.machine import MDNS, Machine

_RESERVED = {"", "localhost", "all", "cluster", "ungrouped"}
"""Names that mean something else to Ansible, or no machine in particular."""


@dataclass(frozen=True)
class AddressChoice:
    """The address for a machine, the NIC that carries it if that is known, and the reason.

    `why` is empty if there was nothing to choose.
    """

    address: str
    nic: Nic | None = None
    why: str = ""


def nic_text(machine: Machine, choice: AddressChoice) -> str:
    """Return the NIC that carries a machine's address with its speed in bit/s; '' if unknown."""
    if choice.nic is None or machine.facts is None:
        return ""
    speed = machine.facts.speed(choice.nic)
    cable = f" {speed / 1000:g}G" if speed >= 1000 else f" {speed}M" if speed else ""
    return f"{choice.nic.name}{' Wi-Fi' if choice.nic.wireless else cable}"


def network_of(held: Held) -> IPv4Network:
    """Return the network of an address."""
    return IPv4Interface(f"{held.address}/{held.prefix}").network


def networks(machines: Sequence[Machine]) -> dict[IPv4Network, int]:
    """Return the networks that machines are on with their number of machines, the best first.

    The best has the most machines; among equals, the one that reached most of them, then the one
    with the most cables.
    """
    held = [each for machine in machines if machine.facts for each in machine.facts.held()]

    def merits(network: IPv4Network) -> tuple[int, int, int, int]:
        on_it = [each for each in machines if _is_on(each, network)]
        reached = sum(_contains(network, each.reached_at) for each in on_it)
        cables = sum(network_of(each) == network and not nic.wireless for nic, each in held)
        return len(on_it), reached, cables, -int(network.network_address)

    found = sorted({network_of(each) for _, each in held}, key=merits, reverse=True)
    return {each: merits(each)[0] for each in found}


def _is_on(machine: Machine, network: IPv4Network) -> bool:
    if machine.facts is None:
        return _contains(network, machine.reached_at)
    return any(network_of(held) == network for _, held in machine.facts.held())


def _contains(network: IPv4Network, address: str) -> bool:
    return bool(address) and IPv4Address(address) in network


def chosen(machines: Sequence[Machine], network: IPv4Network | None = None) -> list[AddressChoice]:
    """Return the address of each machine on a network, by default the best of theirs."""
    shared = networks(machines)
    network = network or next(iter(shared), None)
    return [_choice(machine, network, shared.get(network, 0)) for machine in machines]


def _choice(machine: Machine, network: IPv4Network | None, sharing: int) -> AddressChoice:
    """Return the address of a machine on a network that `sharing` machines are on.

    Without facts it is the address that reached the machine.
    """
    facts = machine.facts
    if facts is None or not facts.held():
        return AddressChoice(machine.reached_at)

    def place(option: tuple[Nic, Held]) -> tuple[bool, bool, int, bool, bool, str]:
        nic, held = option
        in_use = held.address == machine.reached_at
        elsewhere = network_of(held) != network
        return elsewhere, nic.wireless, -facts.speed(nic), not in_use, not nic.leads, held.address

    (nic, held), *others = sorted(facts.held(), key=place)
    why = ""
    if network_of(held) != network:
        why = f"{held.address} is not on {network}, where {sharing} of the machines are"
    elif any(network_of(other) == network for _, other in others):
        why = f"{nic.name} is its best NIC on {network}: a cable before Wi-Fi, then the faster"
    elif others:
        why = f"{sharing} of the machines are on {network}"
    rest = ", ".join(f"{other.address} on {each.name}" for each, other in others)
    return AddressChoice(held.address, nic, f"{why}. It also has {rest}" if rest else why)


def ranked(machines: Iterable[Machine]) -> list[Machine]:
    """Return machines in the suggested order of rank.

    First those with GPUs by memory, then those that nothing is known of, then the others. Where the
    memory is unknown, since no driver is installed yet, newer GPUs come first; laptops come last.
    """

    def place(machine: Machine) -> tuple[int, int, float, bool, str]:
        facts = machine.facts
        if facts is None:
            return 1, 0, 0, False, _label(machine)
        memory = sum(gpu["memory_mib"] or 0 for gpu in facts.gpus)
        capability = max((_number(gpu["capability"]) for gpu in facts.gpus), default=0.0)
        return 0 if facts.gpus else 2, -memory, -capability, facts.battery, _label(machine)

    return sorted(machines, key=place)


def suggested(machines: Sequence[Machine], here: bool) -> list[int]:
    """Return the indices of the machines that probably take part.

    `here` means that a person has asked for this computer. If nothing speaks for any machine, all
    that can be logged in to take part.
    """
    takes = [index for index, each in enumerate(machines) if _probable(each, here)]
    possible = ("local", "key", "password")
    return takes or [index for index, each in enumerate(machines) if each.login in possible]


def _probable(machine: Machine, here: bool) -> bool:
    """Return whether a person has named a machine, or logged in there, or it has a GPU."""
    if machine.candidate.asked or (here and machine.login == "local"):
        return True
    if machine.facts is None:
        return machine.candidate.source != MDNS and machine.login == "password"
    return bool(machine.facts.gpus)


def _number(text: str) -> float:
    return float(text) if re.fullmatch(r"\d+\.\d+", text) else 0.0


def names(machines: Sequence[Machine]) -> list[str]:
    """Return a short name for each machine: unique in any case, and fit for a host name."""
    found: list[str] = []
    for machine in machines:
        label = _label(machine) or f"node{len(found) + 1}"
        taken = {each.lower() for each in found}
        name, number = label, 2
        while name.lower() in taken:
            name, number = f"{label}-{number}", number + 1
        found.append(name)
    return found


def _label(machine: Machine) -> str:
    """Return the name that a machine has: as a person gave it, its host name, as it is known."""
    candidate = machine.candidate
    if candidate.asked and candidate.name:
        return candidate.name
    hostname = machine.facts.hostname if machine.facts else ""
    for name in (hostname, candidate.name, candidate.host):
        if re.fullmatch(r"[\d.]+|.*:.*", name):
            continue
        label = re.sub(r"[^A-Za-z0-9-]+", "-", name.partition(".")[0])[:50].strip("-")
        if label.lower() not in _RESERVED:
            return label
    return ""
