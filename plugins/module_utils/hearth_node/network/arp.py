"""ARP requests (RFC 826, RFC 5227): they need no address of one's own."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable

_REQUEST, _REPLY = 1, 2
_EVERYBODY = b"\xff" * 6
_HEADER = struct.Struct("!6s6sH")
_BODY = struct.Struct("!HHBBH6s4s6s4s")
_ETHERTYPE = 0x0806
_KIND = (1, 0x0800, 6, 4)  # Ethernet, IPv4, and the lengths of their addresses
_REPEAT = 0.3  # seconds between two requests for the same address
_NOBODY = "0.0.0.0"  # an ARP probe claims no address, so it upsets no cache


def request(mac: str, sender: str, target: str) -> bytes:
    """Return the ARP request frame for `target`."""
    ours = bytes.fromhex(mac.replace(":", ""))
    return _HEADER.pack(_EVERYBODY, ours, _ETHERTYPE) + _BODY.pack(
        *_KIND, _REQUEST, ours, socket.inet_aton(sender), bytes(6), socket.inet_aton(target)
    )


def answer_in(frame: bytes) -> tuple[str, str] | None:
    """Return the address that a frame's sender claims, and its MAC."""
    if len(frame) < _HEADER.size + _BODY.size:
        return None
    *kind, operation, mac, address, _, _ = _BODY.unpack_from(frame, _HEADER.size)
    if tuple(kind) != _KIND or operation not in (_REQUEST, _REPLY):
        return None
    return socket.inet_ntoa(address), mac.hex(":")


def ask(
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
                    link.send(request(mac, sender or _NOBODY, target))
                for target in doubted:
                    link.send(request(mac, _NOBODY, target))
                again = now + _REPEAT
            link.settimeout(max(0.01, again - now))
            try:
                heard = answer_in(link.recv(2048))
            except TimeoutError:
                continue
            if not heard or heard[0] not in wanted | doubted or heard[1] in ours:
                continue
            address, answering = heard
            if answering not in found.setdefault(address, []):
                found[address].append(answering)
