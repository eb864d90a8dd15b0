"""Definition of the lab: its machines, addresses and speeds. Nothing here changes the computer."""

from __future__ import annotations

import re
from dataclasses import dataclass

ROUTER = "198.51.100.1"  # TEST-NET-2 (RFC 5737): not used by any real network
PREFIX = 24
USER = PASSWORD = "lab"

# Rank order of inventory/lab. The names of the network cards differ, as in any home.
_NAMES = ("tower", "laptop", "oldbox", *(f"node{n}" for n in range(4, 11)))
_CARDS = (
    *("enp5s0", "wlp0s20f3", "eno1", "enp3s0", "ens18", "enp6s0", "eno2", "enp2s0", "ens3"),
    "enp7s0",
)
# Defaults of a server installer, of a desktop's, and of a desktop with manually changed settings.
_RENDERERS = ("networkd", "netplan-nm", "networkd", "keyfile", "networkd", "netplan-nm") * 2
MOST_NODES = len(_NAMES)
_RATE = re.compile(r"(\d+)(kbit|mbit|gbit)")
_MBIT = {"kbit": 0.001, "mbit": 1, "gbit": 1000}


class LabError(Exception):
    """An error with a full-sentence message: the problem, its cause and its fix."""


@dataclass(frozen=True)
class LabNode:
    """One machine: its name, the name of its network card and the address from the home router.

    `renderer` names the service and file that configure the card: `networkd` and `netplan-nm`
    (NetworkManager) in /etc/netplan, `keyfile` in a NetworkManager profile.
    """

    name: str
    card: str
    renderer: str
    mac: str
    address: str
    tailscale: str


@dataclass
class MachineSettings:
    """The current settings of a machine.

    `link` is a speed such as `1gbit`, or None for no limit; `cores` is the share of the processor
    in cores, and `memory` in GiB, or None for all; `release` is the code name of its Debian or
    Ubuntu; `slurm` is whether it is a node of the lab's Slurm; `shared_home` is whether it has
    the one home that all machines share.
    """

    release: str
    slurm: bool = False
    shared_home: bool = False
    power: bool = True
    cable: bool = True
    link: str | None = None
    cores: float | None = None
    memory: float | None = None


def nodes(count: int = MOST_NODES) -> list[LabNode]:
    """Return the first `count` machines. Raises LabError for an invalid number."""
    if not 1 <= count <= MOST_NODES:
        raise LabError(f"--nodes {count}: the lab has 1 to {MOST_NODES} machines.")
    return [
        LabNode(
            *each, f"02:4c:41:42:00:{n:02x}", f"198.51.100.{10 + n}", tailscale=f"100.64.0.{n}/32"
        )
        for n, each in enumerate(zip(_NAMES[:count], _CARDS, _RENDERERS, strict=False), start=1)
    ]


def machine_named(name: str) -> LabNode:
    """Return the machine of this name, which the lab must have."""
    return next(node for node in nodes() if node.name == name)


def releases(text: str, count: int) -> list[str]:
    """Return the releases of `count` machines, from code names with commas between, in turn.

    Raises LabError for anything that is no code name.
    """
    names = text.split(",")
    if not all(re.fullmatch("[a-z]+", name) for name in names):
        raise LabError(f"--release {text}: give code names, such as trixie or bookworm,trixie.")
    return [names[n % len(names)] for n in range(count)]


def megabits(rate: str) -> float:
    """Convert a speed such as `200kbit`, `100mbit` or `1gbit` to Mbit/s.

    Raises LabError for anything else.
    """
    match = _RATE.fullmatch(rate)
    value = int(match[1]) * _MBIT[match[2]] if match else 0
    if not value:
        raise LabError(f"{rate} is no speed; give one such as 100mbit or 1gbit, or `off`.")
    return value


def cores(text: str) -> float:
    """Parse a share of the processor in cores. Raises LabError unless it is at least 0.05."""
    if not 0.05 <= (value := _number(text)) < 1000:
        raise LabError(f"{text} is no share; give cores such as 0.5 or 2, or `off`.")
    return value


def gib(text: str) -> float:
    """Parse a size of memory in GiB. Raises LabError unless a machine can boot with it."""
    if not 0.25 <= (value := _number(text)) < 10_000:
        raise LabError(f"{text} is no memory; give GiB such as 0.5 or 2, or `off`.")
    return value


def _number(text: str) -> float:
    """Return the number in a text, 0 if it holds none."""
    try:
        return float(text)
    except ValueError:
        return 0.0
