"""Probe the home's network: duplicate addresses, gateway and peers, as seen by this machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence

from ansible.module_utils.hearth.base.nics import Nic
from ansible.module_utils.hearth_node.base import output
from ansible.module_utils.hearth_node.network import arp
from ansible.module_utils.hearth_node.network.plan import IP_ICMP, is_ipv4

_SSH = 22


def listen(
    nic: Nic,
    nics: Sequence[Nic],
    address: str,
    needed: Sequence[str],
    *,
    probes: int = 3,
) -> dict[str, str]:
    """Return the MACs of machines that answer for the `needed` addresses, or claim `address`.

    The result is empty for a NIC that cannot be listened on.
    """
    found = claimants(nic, nics, [address] if address else [], needed, probes=probes)
    return {each: macs[0] for each, macs in found.items()}


def claimants(
    nic: Nic,
    nics: Sequence[Nic],
    addresses: Sequence[str],
    needed: Sequence[str] = (),
    *,
    probes: int = 3,
) -> dict[str, list[str]]:
    """Return the MACs of all other machines that claim one of `addresses`, or answer as `needed`.

    The result is empty for a NIC that cannot be listened on.
    """
    held = [each.address for each in nic.held]
    sender = next((each for each in addresses if each in held), next(iter(held), ""))
    try:
        return arp.ask(
            nic.name,
            nic.mac,
            [each for each in needed if is_ipv4(each)],
            feared=[each for each in addresses if is_ipv4(each)],
            sender=sender,
            own=[each.mac for each in nics],
            probes=probes,
        )
    except OSError:
        return {}


def reachable(nic: Nic, nics: Sequence[Nic], peers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the first address that answers, by name of the peer.

    In the NIC's own network peers are probed by ARP, elsewhere by their SSH port, where a refusal
    counts as an answer.
    """
    networks = [ipaddress.ip_network(f"{each.address}/{each.prefix}", False) for each in nic.held]
    near = {
        address
        for addresses in peers.values()
        for address in addresses
        if is_ipv4(address) and any(ipaddress.ip_address(address) in each for each in networks)
    }
    answers = listen(nic, nics, "", sorted(near)) if near else {}
    found = {}
    for name, addresses in peers.items():
        for address in addresses:
            if address in answers or (address not in near and _accepts(address)):
                found[name] = address
                break
    return found


def cut_off(address: str, mtu: int, peers: Mapping[str, str]) -> dict[str, str]:
    """Return the peers (address by name) that whole packets of `mtu` bytes do not reach."""
    ping = ("ping", "-c", "1", "-W", "2", "-M", "do", "-s", str(mtu - IP_ICMP), "-I", address)
    return {name: at for name, at in peers.items() if not output(*ping, at)}


def _accepts(address: str) -> bool:
    try:
        socket.create_connection((address, _SSH), timeout=2).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
