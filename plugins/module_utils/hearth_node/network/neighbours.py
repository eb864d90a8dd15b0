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
    sender = address if nic.has(address) else next((each.address for each in nic.held), "")
    try:
        return arp.ask(
            nic.name,
            nic.mac,
            [each for each in needed if is_ipv4(each)],
            feared=address,
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
