"""Plan a machine's address: choose the NIC and settings, and find reasons against the change.

Pure: the inputs are the machine's NICs as inspected (`nics`) and the request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.hearth.base.nics import Held, Nic, is_ipv4
from ansible.module_utils.hearth_node.network.nics import Manager

_RESERVE = (
    "in your router's DHCP settings reserve {address} for the MAC {mac}, then restart the machine"
)
_LEAST_MTU = 1280  # of IPv6

IP_ICMP = 28
"""Bytes of a ping's IPv4 and ICMP headers."""


@dataclass(frozen=True)
class AddressRequest:
    """The inventory's request; empty or 0 means the current value.

    `reached` are the addresses that the controller connects to.
    """

    address: str
    interface: str = ""
    mac: str = ""
    gateway: str = ""
    dns: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()
    mtu: int = 0

    @property
    def names_nic(self) -> bool:
        """Whether the inventory names the NIC."""
        return bool(self.interface or self.mac)


@dataclass(frozen=True)
class Wanted:
    """The address for a NIC, with prefix length, gateway, name servers and MTU (0: as it is).

    It replaces the address `instead`, if that is a fixed one.
    """

    address: str
    prefix: int
    gateway: str = ""
    dns: tuple[str, ...] = ()
    instead: str = ""
    mtu: int = 0


def reservation(nic: Nic, address: str) -> str:
    """Return the advice to reserve the address in the router, without a change to the machine."""
    return _RESERVE.format(address=address, mac=nic.mac)


def no_cable(nic: Nic) -> str:
    """Return the finding for a NIC without a link."""
    return f"{nic.name} has no link: see to its cable and the switch"


def near(address: str, wanted: Wanted) -> bool:
    """Return whether an address is in the network of the wanted one."""
    network = ipaddress.IPv4Interface(f"{wanted.address}/{wanted.prefix}").network
    return is_ipv4(address) and ipaddress.IPv4Address(address) in network


def carrier(nics: Sequence[Nic], addresses: Iterable[str]) -> Nic | None:
    """Return the NIC that carries the first of these addresses that is in use.

    If none is, return the NIC of the default route, or the first with a gateway.
    """
    ordinary = [nic for nic in nics if nic.ordinary]
    for address in addresses:
        for nic in ordinary:
            if nic.has(address):
                return nic
    leading = [nic for nic in ordinary if nic.leads]
    return next(iter([*leading, *(nic for nic in ordinary if nic.gateway)]), None)


def choose(nics: Sequence[Nic], request: AddressRequest) -> tuple[Nic | None, list[str]]:
    """Return the NIC for the address, or None with the reasons."""
    known = ", ".join(f"{nic.name} ({nic.mac})" for nic in nics if nic.ordinary)
    if not request.names_nic:
        nic = carrier(nics, (*request.reached, request.address))
        if nic is None:
            return None, [f"no NIC carries an address of the home's network; it has {known}"]
        return nic, []
    fitting = [
        nic
        for nic in nics
        if request.mac.lower() in ("", nic.mac) and request.interface in ("", nic.name)
    ]
    wanted = " and ".join(
        f"{name} {value}"
        for name, value in (
            ("network_interface", request.interface),
            ("network_mac", request.mac),
        )
        if value
    )
    if not fitting:
        return None, [f"no NIC fits {wanted}; it has {known}"]
    if len(fitting) > 1:
        names = ", ".join(nic.name for nic in fitting)
        return None, [f"{wanted} fits {names}; name one of them in network_interface"]
    return fitting[0], []


def held_by(nic: Nic, request: AddressRequest) -> Held | None:
    """Return a NIC's current address: the wanted one, the one it is reached at, or any."""
    for address in (request.address, *request.reached):
        if held := nic.has(address):
            return held
    return next(iter(nic.held), None)


def settle(nic: Nic, manager: Manager, request: AddressRequest) -> Wanted:
    """Return the NIC's new settings: as requested, and the current ones for the rest."""
    held = held_by(nic, request)
    known = held and near(request.address, Wanted(held.address, held.prefix))
    return Wanted(
        request.address,
        held.prefix if held and known else 24,
        request.gateway or nic.gateway,
        request.dns or manager.dns,
        held.address if held else "",
        request.mtu,
    )


def apart(nic: Nic, request: AddressRequest) -> bool:
    """Return whether a named NIC is not the one that the controller comes in by, nor the way out.

    It may be a direct cable to another node: any address can be set there without a lock-out.
    """
    way_in = any(nic.has(address) for address in request.reached)
    return request.names_nic and not (way_in or nic.gateway)


def wrong(nic: Nic, manager: Manager, request: AddressRequest) -> list[str]:
    """Return the reasons against setting this address on this NIC that need no probe.

    The rest of the home's network is not checked here.
    """
    if not is_ipv4(request.address):
        return [f"cluster_address {request.address}: network_mode static sets IPv4 addresses only"]
    wanted, held = settle(nic, manager, request), held_by(nic, request)
    findings = unmanageable(nic, manager, request.address)
    if not nic.cable:
        findings.append(no_cable(nic))
    findings += wrong_mtu(nic, request.mtu)
    if apart(nic, request):
        held = None
    elif held is None:
        findings.append(f"{nic.name} has no address now, so that its network is not known")
    network = ipaddress.IPv4Interface(f"{wanted.address}/{wanted.prefix}").network
    if held and not near(request.address, Wanted(held.address, held.prefix)):
        findings.append(
            f"cluster_address {request.address} is not in the network of {nic.name}, which has "
            f"{held.address}/{held.prefix}: no other machine could reach it there"
        )
    address = ipaddress.IPv4Address(request.address)
    if network.prefixlen < 31 and address in (network.network_address, network.broadcast_address):
        findings.append(f"cluster_address {address} is the first or the last of {network}")
    if wanted.gateway and not is_ipv4(wanted.gateway):
        findings.append(f"network_gateway {wanted.gateway} is not an IPv4 address")
    elif wanted.gateway == request.address:
        findings.append(f"network_gateway {wanted.gateway} is the cluster_address itself")
    elif wanted.gateway and ipaddress.IPv4Address(wanted.gateway) not in network:
        findings.append(f"network_gateway {wanted.gateway} is not in {network}")
    bad = [server for server in request.dns if not is_ipv4(server)]
    if bad:
        findings.append(f"network_dns {', '.join(bad)}: IPv4 addresses are wanted")
    return findings


def unmanageable(nic: Nic, manager: Manager, address: str) -> list[str]:
    """Return the reasons why Hearth cannot set a fixed address with this NIC's manager."""
    way = reservation(nic, address)
    if manager.kind == "ifupdown":
        return [
            f"{nic.name} is set up by ifupdown ({manager.file}), which Hearth leaves alone: {way}, "
            "and set network_mode: verify"
        ]
    if not manager.kind:
        return [
            f"{nic.name} is set up neither by systemd-networkd nor by NetworkManager, so Hearth "
            f"leaves it alone: {way}, and set network_mode: verify"
        ]
    if nic.wireless and manager.kind == "networkd":
        return [
            f"{nic.name} is Wi-Fi that systemd-networkd sets up; Hearth only changes Wi-Fi whose "
            f"credentials NetworkManager holds: {way}, and set network_mode: verify"
        ]
    if manager.kind == "networkd" and not manager.definition:
        return [
            f"{nic.name} is set up by {manager.file}, which netplan has not written: {way}, and "
            "set network_mode: verify"
        ]
    return []


def around(
    nic: Nic,
    address: str,
    gateway: str,
    answers: Mapping[str, str],
    peers: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the problems in the ARP `answers` on a NIC's network (MAC by address).

    `peers` are addresses of the other nodes by name, the one that each is to have first.
    """
    findings = []
    if address in answers:
        findings.append(
            f"{address} is used by another machine, with the MAC {answers[address]} (this one has "
            f"{nic.mac}); " + _way_to(nic, address, peers)
        )
    if gateway and gateway not in answers:
        findings.append(f"the gateway {gateway} does not answer on {nic.name}")
    return findings


def _way_to(nic: Nic, address: str, peers: Mapping[str, Sequence[str]]) -> str:
    """Return the advice for an address that another machine has now, perhaps a node that moves."""
    for name, (its, *now) in peers.items():
        if address not in now:
            continue
        first = f"first move {name}, which has it until then, with -e nodes={name}"
        if nic.has(its):
            return (
                f"two machines cannot swap at once: {first}, to a third address that is free "
                f"(cluster_address), then this machine, then {name} to {its}"
            )
        return f"{first} to {its}, then this machine"
    return "give one of the two another address"


def no_way_out(gateway: str, servers: Mapping[str, Any]) -> str:
    """Return the finding on a gateway that leads to no server that answered before."""
    return (
        f"the gateway {gateway} does not lead out of the home: {', '.join(servers)} answered "
        "before, and none does through it. Is it the router, or another machine of the home?"
    )


def wrong_mtu(nic: Nic, mtu: int) -> list[str]:
    """Return a finding on an MTU that the NIC cannot have."""
    if mtu and nic.wireless:
        return [f"network_mtu {mtu}: {nic.name} is Wi-Fi, whose MTU Hearth leaves as it is"]
    if not mtu or (mtu >= _LEAST_MTU and (not nic.most or mtu <= nic.most)):
        return []
    most = f" to {nic.most}" if nic.most else ""
    return [f"network_mtu {mtu}: {nic.name} takes {_LEAST_MTU}{most}"]


def other_mtu(nic: Nic, mtu: int) -> list[str]:
    """Return a finding on a NIC whose MTU is not the wanted one."""
    if mtu in (0, nic.mtu):
        return []
    return [
        f"{nic.name} has MTU {nic.mtu}, not network_mtu {mtu}: set network_mode: static, or set it "
        "by hand"
    ]


def ambiguous(nic: Nic, nics: Sequence[Nic], request: AddressRequest) -> list[str]:
    """Return findings on an address that is on another NIC than meant, or whose network two have.

    Each NIC gives itself an address in the same link-local network. The kernel sends to it by the
    first NIC that has it, whatever address a socket is bound to.
    """
    if nic.name != (request.interface or nic.name) or nic.mac != (request.mac.lower() or nic.mac):
        meant = " ".join(filter(None, (request.interface, request.mac)))
        return [f"cluster_address {request.address} is on {nic.name}, and not on {meant}"]
    network = next(
        ipaddress.ip_network(f"{held.address}/{held.prefix}", strict=False)
        for held in nic.held
        if held.address == request.address
    )
    return [
        f"{other.name} has {held.address}, in the network {network} of cluster_address "
        f"{request.address} too, so that packets to the other nodes may leave by it: take it off "
        f"{other.name}, or give the nodes a network of their own on {nic.name}"
        for other in nics
        for held in other.held
        if network.is_link_local and other.ordinary and other.name != nic.name
        if ipaddress.ip_address(held.address) in network
    ]


def absent(nics: Sequence[Nic], request: AddressRequest) -> list[str]:
    """Return a finding with possible remedies, if no NIC carries the address."""
    if any(nic.carries(request.address) for nic in nics):
        return []
    nic, _ = choose(nics, request)
    if nic is None:
        return [f"cluster_address {request.address} is on no NIC of the machine"]
    has = ", ".join(f"{held.address}/{held.prefix}" for held in nic.held) or "no address"
    way = "set network_mode: static, or set it by hand"
    if not apart(nic, request):  # a direct cable has no router
        way = f"either {reservation(nic, request.address)}; or set network_mode: static"
    return [
        f"cluster_address {request.address} is not on the machine; {nic.name} (MAC {nic.mac}) has "
        f"{has}: {way}"
    ]


def silent(peers: Mapping[str, str]) -> list[str]:
    """Return a finding for the peers that do not answer (address by name)."""
    if not peers:
        return []
    names = ", ".join(f"{name} at {address}" for name, address in peers.items())
    return [f"no answer from {names}"]


def cut(mtu: int, peers: Mapping[str, str]) -> list[str]:
    """Return a finding for the peers that packets of `mtu` bytes do not reach (address by name)."""
    if not peers:
        return []
    names = ", ".join(f"{name} at {address}" for name, address in peers.items())
    return [
        f"packets of network_mtu {mtu} bytes do not reach {names}: both ends, and a switch between "
        f"them, must carry them (ping -M do -s {mtu - IP_ICMP} ADDRESS)"
    ]


def not_in_force(nic: Nic, wanted: Wanted) -> list[str]:
    """Return the reasons why the NIC is not as wanted (see `is_as`)."""
    held = nic.has(wanted.address)
    if held is None:
        has = ", ".join(f"{each.address}/{each.prefix}" for each in nic.held) or "no address"
        return [f"{nic.name} did not get {wanted.address}, it has {has}"]
    if held.prefix != wanted.prefix:
        return [f"{nic.name} got {wanted.address}/{held.prefix} instead of /{wanted.prefix}"]
    if held.dynamic:
        return [f"{wanted.address} on {nic.name} is still leased from the router"]
    if wanted.gateway and nic.gateway != wanted.gateway:
        return [f"{nic.name} did not get the gateway {wanted.gateway}"]
    return other_mtu(nic, wanted.mtu)
