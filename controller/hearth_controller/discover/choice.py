"""Choose each machine's address, rank and name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from hearth.base.nics import Held, Nic
from hearth_controller.discover.machine import SSH_CONFIG, Machine

_RESERVED = {"", "localhost", "all", "cluster", "ungrouped"}
"""Names that mean something else to Ansible, or no machine in particular."""


@dataclass(frozen=True)
class Choice:
    """The address for a machine, the NIC that carries it if that is known, and the reason.

    `why` is empty if there was nothing to choose.
    """

    address: str
    nic: Nic | None = None
    why: str = ""


def nic_text(machine: Machine, choice: Choice) -> str:
    """Return the NIC that carries a machine's address with its kind or speed; '' if unknown."""
    if choice.nic is None or machine.facts is None:
        return ""
    speed = machine.facts.speed(choice.nic)
    fast = f" {speed / 1000:g} Gbit/s" if speed >= 1000 else f" {speed} Mbit/s" if speed else ""
    return f"{choice.nic.name}{' Wi-Fi' if choice.nic.wireless else fast}"


def network_of(held: Held) -> IPv4Network:
    """Return the network of an address."""
    return IPv4Interface(f"{held.address}/{held.prefix}").network


def networks(machines: Sequence[Machine]) -> list[tuple[IPv4Network, int]]:
    """Return the networks that machines are on with their number of machines, the best first.

    The best has the most machines; of several it is the one by which most were reached, then the
    one with the most cables, then the one with the fastest slowest NIC.
    """
    nics: dict[IPv4Network, list[tuple[Nic, int]]] = {}
    for machine in machines:
        if machine.facts is None:
            continue
        best: dict[IPv4Network, Nic] = {}
        for nic, held in machine.facts.held():
            other = best.setdefault(network_of(held), nic)
            best[network_of(held)] = min(nic, other, key=lambda each: each.wireless)
        for network, nic in best.items():
            nics.setdefault(network, []).append((nic, machine.facts.speed(nic)))
    reached = [IPv4Address(each.reached_at) for each in machines if each.reached_at]
    blind = [
        IPv4Address(each.reached_at) for each in machines if not each.facts and each.reached_at
    ]

    def merits(network: IPv4Network) -> tuple[int, int, int, int, int]:
        return (
            len(nics[network]) + sum(address in network for address in blind),
            sum(address in network for address in reached),
            sum(not nic.wireless for nic, _ in nics[network]),
            min(speed for _, speed in nics[network]),
            -int(network.network_address),
        )

    return [(each, merits(each)[0]) for each in sorted(nics, key=merits, reverse=True)]


def chosen(machines: Sequence[Machine], network: IPv4Network | None = None) -> list[Choice]:
    """Return the address of each machine on a network, by default the best of theirs."""
    shared = dict(networks(machines))
    network = network or next(iter(shared), None)
    return [address_for(machine, network, shared.get(network, 0)) for machine in machines]


def address_for(machine: Machine, network: IPv4Network | None, sharing: int) -> Choice:
    """Return the address of a machine on a network that `sharing` machines are on.

    A cable wins over Wi-Fi. Without facts it is the address at which the machine was reached.
    """
    if machine.facts is None:
        return Choice(machine.reached_at)
    options = sorted(machine.facts.held(), key=lambda each: _preference(machine, *each))
    inside = [each for each in options if network_of(each[1]) == network]
    if not options:
        return Choice(machine.reached_at, why="no NIC with an IPv4 address was seen")
    speed = machine.facts.speed
    nic, held = (inside or options)[0]
    others = [each for each in options if each[1] != held]
    if not others and inside:
        return Choice(held.address, nic)
    rivals = [each for each, other in others if network_of(other) == network]
    if not inside:
        why = f"is not on {network}, where {sharing} of the machines are"
    elif not rivals:
        why = f"{sharing} of the machines are on {network}"
    elif not nic.wireless and all(each.wireless for each in rivals):
        why = f"{nic.name} is a cable"
    elif all(speed(nic) > speed(each) for each in rivals):
        why = f"{nic.name} is the fastest NIC on {network}"
    else:
        why = f"{nic.name} is one of several NICs on {network}"
    rest = ", ".join(f"{other.address} on {each.name}" for each, other in others)
    return Choice(held.address, nic, f"{why}{f' (also has {rest})' if rest else ''}")


def _preference(machine: Machine, nic: Nic, held: Held) -> tuple[bool, int, bool, bool, str]:
    """Return the sort key of an address: the smallest is the best."""
    speed = machine.facts.speed(nic) if machine.facts else 0
    in_use = held.address == machine.reached_at
    return nic.wireless, -speed, not in_use, not nic.leads, held.address


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


def suggested(machines: Sequence[Machine], here: bool | None) -> list[int]:
    """Return the indices of the machines that probably take part.

    `here` is whether this computer does, if a person has said so. If none has a GPU, all that let
    us in take part.
    """
    takes = [index for index, each in enumerate(machines) if _probable(each, here)]
    return takes or [
        index
        for index, each in enumerate(machines)
        if each.login == "key" or (each.login == "local" and here is not False)
    ]


def _probable(machine: Machine, here: bool | None) -> bool:
    if machine.login == "local" and here is not None:
        return here
    if machine.candidate.asked or machine.facts is None:
        known = machine.login == "password" and machine.candidate.source == SSH_CONFIG
        return machine.candidate.asked or known
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
