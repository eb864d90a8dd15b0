"""Probe the network as seen by this machine: duplicate addresses, gateway, peers, the way out.

ARP requests (RFC 826, RFC 5227) need no address of one's own. They tell only that some machine has
the gateway's address, and any PC of the home answers it: servers outside prove that it leads out.
"""

from __future__ import annotations

import glob
import ipaddress
import re
import socket
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.hearth.base.commands import output
from ansible.module_utils.hearth.base.nics import Nic, answers, is_ipv4
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.network.plan import IP_ICMP, Wanted, near

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
        return ask_by_arp(
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
    found_by_arp = listen(nic, nics, "", sorted(near)) if near else {}
    found = {}
    for name, addresses in peers.items():
        for address in addresses:
            if address in found_by_arp or (
                address not in near and answers(address, _SSH, refusal=True)
            ):
                found[name] = address
                break
    return found


def cut_off(address: str, mtu: int, peers: Mapping[str, str]) -> dict[str, str]:
    """Return the peers (address by name) that whole packets of `mtu` bytes do not reach."""
    ping = ("ping", "-c", "1", "-W", "2", "-M", "do", "-s", str(mtu - IP_ICMP), "-I", address)
    return {name: at for name, at in peers.items() if not output(*ping, at)}


_REQUEST, _REPLY = 1, 2
_EVERYBODY = b"\xff" * 6
_HEADER = struct.Struct("!6s6sH")
_BODY = struct.Struct("!HHBBH6s4s6s4s")
_ETHERTYPE = 0x0806
_KIND = (1, 0x0800, 6, 4)  # Ethernet, IPv4, and the lengths of their addresses
_REPEAT = 0.3  # seconds between two requests for the same address
_NOBODY = "0.0.0.0"  # an ARP probe claims no address, so it upsets no cache


def arp_request(mac: str, sender: str, target: str) -> bytes:
    """Return the ARP request frame for `target`."""
    ours = bytes.fromhex(mac.replace(":", ""))
    return _HEADER.pack(_EVERYBODY, ours, _ETHERTYPE) + _BODY.pack(
        *_KIND, _REQUEST, ours, socket.inet_aton(sender), bytes(6), socket.inet_aton(target)
    )


def arp_answer(frame: bytes) -> tuple[str, str] | None:
    """Return the address that a frame's sender claims, and its MAC."""
    if len(frame) < _HEADER.size + _BODY.size:
        return None
    *kind, operation, mac, address, _, _ = _BODY.unpack_from(frame, _HEADER.size)
    if tuple(kind) != _KIND or operation not in (_REQUEST, _REPLY):
        return None
    return socket.inet_ntoa(address), mac.hex(":")


def ask_by_arp(
    nic: str,
    mac: str,
    needed: Iterable[str] = (),
    *,
    feared: Iterable[str] = (),
    sender: str = "",
    own: Iterable[str] = (),
    probes: int = 3,
    seconds: float = 1.5,
) -> dict[str, list[str]]:
    """Return the MACs by address of the machines that answer for them on a NIC's network.

    `needed` are addresses that should answer: the call ends once all have. `feared` are those that
    no machine should have, or only one: they are probed `probes` times, without a sender address.
    `own` are the MACs of this machine, whose answers do not count. Raises OSError if the NIC cannot
    be listened on.
    """
    wanted, doubted, ours = set(needed), set(feared), {each.lower() for each in (*own, mac)}
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETHERTYPE)) as link:
        link.bind((nic, _ETHERTYPE))
        began = again = time.monotonic()
        while True:
            now = time.monotonic()
            quiet = now >= began + probes * _REPEAT or not doubted
            if now >= began + seconds or (quiet and wanted <= found.keys()):
                return found
            if now >= again:
                for target in wanted - found.keys():
                    link.send(arp_request(mac, sender or _NOBODY, target))
                for target in doubted:
                    link.send(arp_request(mac, _NOBODY, target))
                again = now + _REPEAT
            link.settimeout(max(0.01, again - now))
            try:
                heard = arp_answer(link.recv(2048))
            except TimeoutError:
                continue
            if not heard or heard[0] not in wanted | doubted or heard[1] in ours:
                continue
            address, answering = heard
            if answering not in found.setdefault(address, []):
                found[address].append(answering)


_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*")
_URL = re.compile(r"^[^#\n]*?\b(https?)://([\w.-]+)(?::(\d+))?", re.MULTILINE)
_PORTS = {"http": 80, "https": 443}
_DOMAIN = 53
_MOST = 4
_SECONDS = 2

Server = tuple[str, int]


def package_servers(sources: str) -> list[Server]:
    """Return host and port of the first package servers that apt's `sources` name."""
    found = [(host, int(port or _PORTS[kind])) for kind, host, port in _URL.findall(sources)]
    return list(dict.fromkeys(found))[:_MOST]


def outside_servers(wanted: Wanted) -> dict[str, Server]:
    """Return IPv4 address and port of servers outside of the wanted network, by their names.

    They are name servers and apt's package servers that this machine is set up to use.
    """
    paths = (path for pattern in _SOURCES for path in sorted(glob.glob(pattern)))
    named = package_servers("\n".join(map(text_of, paths)))
    named += [(server, _DOMAIN) for server in wanted.dns]
    found = {}
    with ThreadPoolExecutor(len(named) or 1) as threads:
        for (name, port), address in zip(named, threads.map(_resolve, named), strict=True):
            if address and not near(address, wanted):
                found[name] = (address, port)
    return found


def _resolve(server: Server) -> str:
    try:
        return socket.getaddrinfo(*server, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError:
        return ""


def reached_through(nic: str, asked: Mapping[str, Server]) -> dict[str, Server]:
    """Return the servers that answer through this NIC, even if others lead out too."""
    with ThreadPoolExecutor(len(asked) or 1) as threads:
        answers = threads.map(lambda server: _answers(nic, server), asked.values())
        return {name: asked[name] for name, answer in zip(asked, answers, strict=True) if answer}


def _answers(nic: str, server: Iterable[str | int]) -> bool:
    with socket.socket() as probe:
        probe.settimeout(_SECONDS)
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.encode())
            probe.connect(tuple(server))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return True
