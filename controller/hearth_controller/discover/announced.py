"""Machines that announce themselves on the local network by mDNS (Avahi, Bonjour)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

SERVICES = ("_ssh._tcp.local.", "_sftp-ssh._tcp.local.", "_workstation._tcp.local.")
SECONDS = 3.0
_MOST = 100
"""Services that are looked up: more come from no home."""

_SSH = 22


@dataclass(frozen=True)
class Announcement:
    """A machine's name without `.local`, its IPv4 address and its SSH port."""

    name: str
    address: str
    port: int


def listen(
    seconds: float = SECONDS, interfaces: Sequence[str] | None = None
) -> tuple[list[Announcement], str]:
    """Return the machines that announce themselves within some seconds, and why it failed or ''.

    `interfaces` are the own addresses to listen at, by default all.
    """
    try:
        from zeroconf import InterfaceChoice, IPVersion, ServiceBrowser, ServiceInfo, Zeroconf
    except ImportError:
        return [], "the package zeroconf is missing; ./scripts/setup installs it"
    names: set[tuple[str, str]] = set()

    def note(zeroconf: Zeroconf, service_type: str, name: str, **_: object) -> None:
        names.add((service_type, name))

    try:
        with Zeroconf(interfaces or InterfaceChoice.All, ip_version=IPVersion.V4Only) as zeroconf:
            ServiceBrowser(zeroconf, list(SERVICES), handlers=[note])
            time.sleep(seconds)
            found = []
            for kind, name in sorted(names)[:_MOST]:
                info = ServiceInfo(kind, name)
                # The answers usually bring the address along; one more question is asked if not.
                if info.load_from_cache(zeroconf) or info.request(zeroconf, 300):
                    found += _of(info.server or name, info.parsed_addresses(), kind, info.port)
    except (OSError, RuntimeError) as error:
        return [], f"mDNS cannot be used here ({error})"
    return list(dict.fromkeys(found)), ""


def _of(server: str, addresses: Sequence[str], kind: str, port: int | None) -> list[Announcement]:
    """Return the announcements in a service: one for each IPv4 address."""
    # A workstation announces port 9 (discard), since it is no service.
    ssh = port if port and "ssh" in kind else _SSH
    name = server.removesuffix(".").removesuffix(".local")
    return [Announcement(name, address, ssh) for address in addresses if ":" not in address]
