"""Network interfaces as `ip` reports them, and tests of addresses from this machine.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import ipaddress
import json
import re
import socket
from dataclasses import dataclass
from typing import Any

# Virtual NICs that programs create; none is chosen as the cluster's NIC automatically.
_MADE_BY_PROGRAMS = re.compile(
    r"lo|(docker|virbr|tailscale|wg|tun|tap|zt|vmnet|cni|flannel|podman|lxc|lxdbr)\d*.*"
    r"|(br-|veth|cali|dummy).*"
)


def is_ipv4(text: str) -> bool:
    """Return whether `text` is an IPv4 address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def is_own(address: str) -> bool:
    """Return whether this machine has an address on any interface."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def answers(host: str, port: int, refusal: bool = False) -> bool:
    """Return whether a connection to `host` is accepted within two seconds, or else refused."""
    try:
        socket.create_connection((host, port), timeout=2).close()
    except ConnectionRefusedError:
        return refusal
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Held:
    """An IPv4 address that a NIC has; `dynamic` if it was leased by a DHCP server."""

    address: str
    prefix: int
    dynamic: bool


@dataclass(frozen=True)
class Nic:
    """A network interface; `gateway` is that of its default route, or empty.

    `held` are its IPv4 addresses, `sixes` its IPv6 ones; `leads` if the best default route is its.
    `mtu` is the largest packet in bytes, `most` the largest that the NIC can be set to; 0: unknown.
    """

    name: str
    index: int
    mac: str
    cable: bool
    held: tuple[Held, ...] = ()
    sixes: tuple[str, ...] = ()
    gateway: str = ""
    wireless: bool = False
    leads: bool = False
    mtu: int = 0
    most: int = 0

    @property
    def ordinary(self) -> bool:
        """Whether it is not a program's virtual NIC."""
        return not _MADE_BY_PROGRAMS.fullmatch(self.name)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All its addresses, IPv4 first."""
        return (*(held.address for held in self.held), *self.sixes)

    def carries(self, address: str) -> bool:
        """Return whether the NIC has this address, IPv4 or IPv6."""
        wanted = ipaddress.ip_address(address)
        return any(ipaddress.ip_address(each) == wanted for each in self.addresses)

    def has(self, address: str) -> Held | None:
        """Return the NIC's entry for this address, or None."""
        return next((held for held in self.held if held.address == address), None)


def nics_of(links: str, routes: str, wireless: set[str]) -> list[Nic]:
    """Return the NICs in the output of `ip -j -d address` and `ip -j -4 route show default`.

    `wireless` are the names of the Wi-Fi NICs. If a NIC has several default routes, the one
    with the lowest metric is used.
    """
    gateways: dict[str, str] = {}
    for route in sorted(_read(routes), key=lambda each: each.get("metric", 0)):
        if "dev" in route:
            gateways.setdefault(route["dev"], route.get("gateway", ""))
    leading = next(iter(gateways), "")
    return [
        Nic(
            name=link["ifname"],
            index=link["ifindex"],
            mac=link.get("address", "").lower(),
            cable="LOWER_UP" in link["flags"],
            held=tuple(
                Held(each["local"], each["prefixlen"], bool(each.get("dynamic")))
                for each in link.get("addr_info", [])
                if each["family"] == "inet"
            ),
            sixes=tuple(
                each["local"] for each in link.get("addr_info", []) if each["family"] == "inet6"
            ),
            gateway=gateways.get(link["ifname"], ""),
            wireless=link["ifname"] in wireless,
            leads=link["ifname"] == leading,
            mtu=link.get("mtu", 0),
            most=link.get("max_mtu", 0),
        )
        for link in _read(links)
        if link
    ]


def _read(text: str) -> list[dict[str, Any]]:
    return json.loads(text) if text.strip() else []
