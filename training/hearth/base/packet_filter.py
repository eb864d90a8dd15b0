"""Listening sockets that answer the given addresses only: a packet filter on each, in the kernel.

The filter is a classic BPF program (SO_ATTACH_FILTER). It reads the source address of every packet
that arrives at the socket, from the first packet of a connection on. Accepted connections inherit
it. Strangers get no answer at all. Some kernels take a filter from root only: there the socket
closes a stranger's connection as soon as it is accepted.
"""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterable
from typing import Any

Instruction = tuple[int, int, int, int]
"""Opcode, instructions to skip if true and if false, operand: `struct sock_filter`."""

_SO_ATTACH_FILTER = 26

_LOAD_WORD, _LOAD_BYTE, _SHIFT_RIGHT = 0x20, 0x30, 0x74
_IF_EQUAL, _SKIP, _RETURN = 0x15, 0x05, 0x06

_IP_HEADER = 0xFFF00000
"""SKF_NET_OFF: offsets from here count from the IP header; a TCP socket's data begin behind it."""

_SOURCE = {4: 12, 6: 8}
_WHOLE, _NOTHING = 0xFFFFFFFF, 0


class ChoosyListener(socket.socket):
    """A socket that accepts connections from the `allowed` addresses only.

    Attributes:
        filtered: whether the kernel drops the packets of others. If not, `accept` closes their
            connections, which it cannot for a program that is given the descriptor.
    """

    def __init__(self, family: int, kind: int, allowed: Iterable[str]) -> None:
        super().__init__(family, kind)
        self._allowed = frozenset(allowed)
        self.filtered = admit_only(self, self._allowed)

    def admit(self, address: str) -> None:
        """Accept connections from another address, too."""
        if not is_allowed(address, self._allowed):
            self._allowed |= {address}
            self.filtered = admit_only(self, self._allowed)

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection from an allowed address, and that address."""
        while True:
            connection, peer = super().accept()
            if self.filtered or is_allowed(peer[0], self._allowed):
                return connection, peer
            connection.close()


def is_allowed(address: str, allowed: Iterable[str]) -> bool:
    """Return whether a peer's `address`, with a scope maybe, is one of the `allowed`."""
    peer = ipaddress.ip_address(address.partition("%")[0])
    return any(peer == ipaddress.ip_address(each) for each in allowed)


def listening(address: str, port: int, allowed: Iterable[str]) -> ChoosyListener:
    """Return a socket that listens at an IP address and answers the `allowed` addresses only.

    Raises `OSError` if the port is taken or may not be used.
    """
    family, kind, _, _, place = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    listener = ChoosyListener(family, kind, allowed)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def admit_only(listener: socket.socket, allowed: Iterable[str]) -> bool:
    """Make a listening socket drop packets from all but the `allowed` addresses.

    Returns whether it does: some kernels take no filter from this user.
    """
    code = [struct.pack("=HBBI", *instruction) for instruction in program(allowed)]
    text = ctypes.create_string_buffer(b"".join(code))
    filters = struct.pack("HP", len(code), ctypes.addressof(text))
    try:
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, filters)
    except PermissionError:
        return False
    return True


def program(allowed: Iterable[str]) -> list[Instruction]:
    """Return the program that passes packets from the `allowed` IPv4 and IPv6 addresses."""
    drop = (_RETURN, 0, 0, _NOTHING)
    sections: dict[int, list[Instruction]] = {4: [], 6: []}
    for address in sorted({ipaddress.ip_address(each).packed for each in allowed}):
        sections[4 if len(address) == 4 else 6] += _pass_from(address)
    return [
        (_LOAD_BYTE, 0, 0, _IP_HEADER),  # its upper half is the IP version
        (_SHIFT_RIGHT, 0, 0, 4),
        (_IF_EQUAL, 0, 1, 6),
        (_SKIP, 0, 0, len(sections[4]) + 1),
        *sections[4],
        drop,
        *sections[6],
        drop,
    ]


def _pass_from(address: bytes) -> list[Instruction]:
    """Return the instructions that pass a packet from `address`, and go on with any other."""
    start = _IP_HEADER + _SOURCE[4 if len(address) == 4 else 6]
    found: list[Instruction] = []
    for at in range(0, len(address), 4):
        rest = (len(address) - at) // 2 - 1
        found.append((_LOAD_WORD, 0, 0, start + at))
        found.append((_IF_EQUAL, 0, rest, int.from_bytes(address[at : at + 4])))
    return [*found, (_RETURN, 0, 0, _WHOLE)]
