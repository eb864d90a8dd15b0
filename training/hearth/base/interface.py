"""Network lookups: the interface that carries an address, its card, free ports; other nodes."""

from __future__ import annotations

import errno
import ipaddress
import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from hearth.base.errors import LaunchError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NEVER_PICKED = range(61000, 65536)
"""Ports that Linux gives to no connection and no socket by itself (`ip_local_port_range`)."""


def interface_of(address: str) -> str:
    """Return the name of this machine's interface that carries `address`.

    The whole loopback network belongs to the loopback interface, even where only its first
    address is listed: two nodes on one computer rely on that.

    Raises `LaunchError` if no interface carries it, or the one that does is down.
    """
    wanted = ipaddress.ip_address(address)
    carried = _addresses()
    for name, own in carried:
        if own == wanted or (
            own.is_loopback and wanted.is_loopback and own.version == wanted.version
        ):
            if not psutil.net_if_stats()[name].isup:
                raise LaunchError(f"{name}, the interface of {address}, is down: bring it up")
            return name
    known = ", ".join(f"{name} {own}" for name, own in carried if not own.is_link_local)
    raise LaunchError(
        f"no interface of this machine carries the cluster address {address} (there is {known}): "
        "set cluster_address of this host in the inventory"
    )


def _addresses() -> list[tuple[str, Address]]:
    """Return all (interface, address) pairs of this machine."""
    return [
        (name, ipaddress.ip_address(entry.address.partition("%")[0]))
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    ]


def family_of(address: str) -> str:
    """Return `AF_INET` or `AF_INET6`, the names NCCL expects."""
    return "AF_INET6" if ipaddress.ip_address(address).version == 6 else "AF_INET"


def source_towards(address: str) -> str:
    """Return this machine's source address for connections to `address`. Sends no packet."""
    with socket.socket(getattr(socket, family_of(address)), socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))
        return str(probe.getsockname()[0])


def free_port(address: str, port: int = 0) -> int:
    """Return `port` if it is free at `address`, or any free port for 0.

    The caller listens a moment later. A port that Linux gives to connections could be taken
    meanwhile, so it is none of those.

    Raises `LaunchError` if the port is taken or may not be used.
    """
    ports = [port] if port else random.SystemRandom().sample(_NEVER_PICKED, k=20)
    for candidate in ports:
        with socket.socket(getattr(socket, family_of(address))) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, candidate))
                probe.listen()
            except OSError as error:
                refused = port_error(address, candidate, error)
            else:
                return candidate
    raise refused


def random_port() -> int:
    """Return a port of another machine that is most likely free there."""
    return random.SystemRandom().choice(_NEVER_PICKED)


def port_error(address: str, port: int, error: OSError) -> LaunchError:
    """Return the error for a failure to listen at `address` and `port`."""
    return LaunchError(
        f"port {port} of {address} cannot be used ({error.strerror or error}): "
        "end the program that holds it or choose another with -e meeting_port="
    )


def card(name: str, system: Path) -> dict[str, Any]:
    """Return the kernel's facts about a network interface."""
    card = system / "class/net" / name
    negotiated = kernel_text(card / "speed")
    return {
        "interface": name,
        "nic_mbit": int(negotiated) if negotiated.isdecimal() and int(negotiated) else None,
        "rdma": (card / "device/infiniband").exists(),
        "wireless": (card / "wireless").exists() or (card / "phy80211").exists(),
    }


def kernel_text(path: Path) -> str:
    """Return the content of a small kernel file, or "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


_NO_WAY = {errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}


@dataclass(frozen=True)
class Peer:
    """A node that listens; peers are in rank order."""

    name: str
    address: str
    port: int


def reason(error: Exception) -> str:
    """Describe in a few words why a peer did not answer, with the likely cause."""
    if isinstance(error, TimeoutError):
        return "no answer on TCP (firewall?)"
    if isinstance(error, ConnectionRefusedError):
        return "refused on TCP (firewall?)"
    if isinstance(error, OSError) and error.errno in _NO_WAY:
        return "no way there (cable, address or firewall?)"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return "it hung up (firewall?)"
