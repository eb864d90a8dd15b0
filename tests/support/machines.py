"""Machines of a home as `hearth init` finds them, from the report that each would send."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hearth_controller.discover.machine import Login, Machine, Route, SshTarget, facts_of
from hearth_controller.inventory.hostkeys import PublicKey

KEY = PublicKey(
    "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIOeN47uM9+lcG3olYsPLoHKhjk3VAtEPkTX2k/FYksuO"
)
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'
UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nVERSION_ID="24.04"\n'


def link(name: str, *addresses: str, mac: str = "", up: bool = True) -> dict[str, Any]:
    """Return a NIC as `ip -j address` shows it, with addresses such as `192.168.1.40/24`."""
    held = [address.split("/") for address in addresses]
    return {
        "ifname": name,
        "ifindex": 2,
        "address": mac or f"02:00:00:00:00:{sum(map(ord, name + ''.join(addresses))) % 256:02x}",
        "flags": ["UP", "LOWER_UP"] if up else ["UP"],
        "addr_info": [
            {"family": "inet", "local": local, "prefixlen": int(prefix)} for local, prefix in held
        ],
    }


def report(
    hostname: str = "tower",
    links: Sequence[Mapping[str, Any]] = (),
    *,
    came_in: str = "-",
    wireless: Sequence[str] = (),
    speeds: Mapping[str, str] | None = None,
    cards: Sequence[str] = (),
    gpus: str = "",
    release: str = DEBIAN,
    **more: Any,
) -> dict[str, Any]:
    """Return the report of the probe on a machine; `cards` are PCI ids of NVIDIA's devices."""
    return {
        "hostname": hostname,
        "release": release,
        "arch": "x86_64",
        "links": json.dumps(links or [link("enp5s0", "192.168.1.40/24")]),
        "routes": "",
        "wireless": list(wireless),
        "speeds": speeds or {},
        "cards": [["10de", card] for card in cards],
        "gpus": gpus,
        "battery": False,
        "root": False,
        "groups": ["lab", "sudo"],
        "user": "lab",
        "came_in": came_in,
        **more,
    }


def machine(
    host: str = "tower",
    *,
    login: Login = "key",
    facts: Mapping[str, Any] | None = None,
    source: str = "~/.ssh/config",
    address: str = "",
    user: str = "lab",
    options: Mapping[str, str] | None = None,
    port: int = 22,
    **more: Any,
) -> Machine:
    """Return a machine that was tried; without `facts` it refused the login."""
    named = {name: more.pop(name) for name in ("name", "asked") if name in more}
    return Machine(
        SshTarget(host, source, **named),
        Route(host, address, user, port, options or {}),
        login,
        facts_of(facts) if facts else None,
        **more,
    )


def at(number: int, hostname: str = "", **more: Any) -> Machine:
    """Return a machine that let us in at 192.168.1.NUMBER, the address of its only NIC."""
    address = f"192.168.1.{number}"
    nic = link("enp5s0", f"{address}/24", mac=f"02:00:00:00:01:{number:02x}")
    hostname = hostname or f"machine{number}"
    return machine(
        hostname, address=address, facts=report(hostname, [nic], came_in=address, **more)
    )
