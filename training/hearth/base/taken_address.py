"""Find an address that two machines have, by what each machine knows of its network.

A machine knows its own addresses, and the MACs of others from its neighbour table, both without
root. Standard library only: modules ship this file to machines without Hearth.
"""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

# Ansible ships these files under a package of its own.
from .commands import output

_DISCARD = 9
_RESOLVED = 1.0
"""Seconds within which a machine of the home answers the question for its MAC."""

CURE = "give one of the two another address, in your router or on the machine"
"""What to do about two machines with one address."""


def network_view(peers: Iterable[str], ask: bool = True) -> dict[str, Any]:
    """Return the view of this machine on its network.

    These are its `addresses` (MAC by address), all its `macs`, and the `neighbours` among the
    addresses `peers` (MAC by address). With `ask`, the kernel asks for those that it does not know.
    """
    addresses, macs = own_addresses(output("ip", "-j", "address", "show", seconds=5))
    wanted = {each for each in peers if each not in addresses and not _is_loopback(each)}
    neighbours = neighbours_in(output("ip", "-j", "neigh", "show", seconds=5))
    if ask and not wanted <= neighbours.keys():
        for address in wanted:
            _knock(address)
        end = time.monotonic() + _RESOLVED
        while not wanted <= neighbours.keys() and time.monotonic() < end:
            time.sleep(0.1)
            neighbours = neighbours_in(output("ip", "-j", "neigh", "show", seconds=5))
    known = {address: mac for address, mac in neighbours.items() if address in wanted}
    return {"addresses": addresses, "macs": macs, "neighbours": known}


def own_addresses(links: str) -> tuple[dict[str, str], list[str]]:
    """Return the MAC by address, and all MACs, in the output of `ip -j address`.

    The loopback interface has no MAC, and its addresses are those of every machine.
    """
    cards = [link for link in _read(links) if link and link.get("link_type") == "ether"]
    return {
        entry["local"]: card["address"].lower()
        for card in cards
        for entry in card.get("addr_info", [])
    }, sorted({card["address"].lower() for card in cards})


def neighbours_in(table: str) -> dict[str, str]:
    """Return the MAC by resolved address, in the output of `ip -j neigh show`."""
    return {
        entry["dst"]: entry["lladdr"].lower()
        for entry in _read(table)
        if entry.get("lladdr") and "FAILED" not in entry.get("state", ())
    }


def taken_twice(
    node: str, address: str, views: Mapping[str, Mapping[str, Any]], reached: bool = True
) -> str:
    """Return the two machines that have a node's `address`, each with its MAC, or ''.

    `views` are by node the results of `network_view`; an unreachable node has none. One may have
    the `claimants` of addresses, too (MACs by address), from an ARP probe. If the node is
    `reached`, the others' MAC for it proves nothing: a Wi-Fi repeater shows its own.
    """
    own = views.get(node, {})
    machines = {own["addresses"][address]: node} if address in own.get("addresses", {}) else {}
    for other, view in views.items():
        if mac := view["addresses"].get(address):
            machines.setdefault(mac, other)
    for other, view in views.items():
        seen = list(view.get("claimants", {}).get(address, ()))
        if other != node:
            seen = [] if reached else [*seen, view["neighbours"].get(address)]
        for mac in seen:
            if mac and mac not in own.get("macs", ()):
                machines.setdefault(mac, f"answers {other}")
    if len(machines) < 2:
        return ""
    return " and ".join(f"{mac} ({name})" for mac, name in list(machines.items())[:2])


class AddressWatch:
    """Notes the MACs of a run's nodes, and tells when another machine has a node's address."""

    def __init__(self, own: str, addresses: Mapping[str, str]) -> None:
        """Watch the nodes of these `addresses` from the node `own`."""
        self._own = own
        self._addresses = {name: each for name, each in addresses.items() if not _is_loopback(each)}
        self._macs: dict[str, str] = {}

    def connected(self, node: str) -> None:
        """Note the MAC of a connected node, which has proved its identity."""
        address = self._addresses.get(node)
        if address and (mac := network_view([address], ask=False)["neighbours"].get(address)):
            self._macs[node] = mac

    def why_lost(self, node: str) -> str:
        """Return the finding that another machine has the address of a lost node, or ''."""
        if not (before := self._macs.get(node)):
            return ""
        address = self._addresses[node]
        view = network_view([address], ask=False)
        now = view["addresses"].get(address) or view["neighbours"].get(address)
        if not now or now == before:
            return ""
        who = self._own if address in view["addresses"] else "another machine"
        return (
            f"{who} has its address {address}, too: {now} instead of {before} answers there; {CURE}"
        )


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _knock(address: str) -> None:
    """Send an empty packet to a closed port, so that the kernel asks for the machine's MAC."""
    family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as packet:
        packet.sendto(b"", (address, _DISCARD))


def _read(text: str) -> list[dict[str, Any]]:
    return json.loads(text) if text.strip() else []
