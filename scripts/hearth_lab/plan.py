"""What the lab is: its machines, addresses and speeds. Nothing here touches the computer."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hearth_lab.errors import LabError

ROUTER = "198.51.100.1"  # TEST-NET-2 (RFC 5737): no home has it, so nothing real can be meant
PREFIX = 24
USER = PASSWORD = "lab"

# Rank order of inventory/lab. The cards differ in name, as they do in any house.
_NAMES = ("tower", "laptop", "oldbox", *(f"node{n}" for n in range(4, 11)))
_CARDS = (
    *("enp5s0", "wlp0s20f3", "eno1", "enp3s0", "ens18", "enp6s0", "eno2", "enp2s0", "ens3"),
    "enp7s0",
)
# What a server's installer leaves, a desktop's, and a desktop whose owner clicked in its settings.
_RENDERERS = ("networkd", "netplan-nm", "networkd", "keyfile", "networkd", "netplan-nm") * 2
MOST_NODES = len(_NAMES)
_RATE = re.compile(r"(\d+)(mbit|gbit)")


@dataclass(frozen=True)
class Node:
    """One machine: its name, the name of its network card and what the home router gives it.

    `renderer` says who sets up the card, and where that is written: `networkd` and `netplan-nm`
    (NetworkManager) in /etc/netplan, `keyfile` in a profile of NetworkManager's own.
    """

    name: str
    card: str
    renderer: str
    mac: str
    address: str
    tailscale: str


@dataclass
class Settings:
    """How a machine is set up at the moment.

    `link` is a speed such as `1gbit`, or None for as fast as this computer can; `cores` the share
    of the processor in cores, or None for all.
    """

    power: bool = True
    cable: bool = True
    link: str | None = None
    cores: float | None = None


def nodes(count: int = MOST_NODES) -> list[Node]:
    """Return the first `count` machines. Raises LabError where the lab has no such number."""
    if not 1 <= count <= MOST_NODES:
        raise LabError(f"--nodes {count}: the lab has 1 to {MOST_NODES} machines.")
    return [
        Node(*each, f"02:4c:41:42:00:{n:02x}", f"198.51.100.{10 + n}", tailscale=f"100.64.0.{n}/32")
        for n, each in enumerate(zip(_NAMES[:count], _CARDS, _RENDERERS, strict=False), start=1)
    ]


def megabits(rate: str) -> int:
    """Return a speed such as `100mbit` or `1gbit` in Mbit/s. Raises LabError for anything else."""
    match = _RATE.fullmatch(rate)
    value = int(match[1]) * (1000 if match[2] == "gbit" else 1) if match else 0
    if not value:
        raise LabError(f"{rate} is no speed; give one such as 100mbit or 1gbit, or `off`.")
    return value


def cores(text: str) -> float:
    """Return a share of the processor in cores. Raises LabError unless it is at least 0.05."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.05 <= value < 1000:
        raise LabError(f"{text} is no share; give cores such as 0.5 or 2, or `off`.")
    return value
