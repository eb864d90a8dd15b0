"""A machine of the home: the way to it, and the facts that it reported. Pure."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hearth.base.nics import Held, Nic, is_ipv4, nics_of
from hearth.base.nvidia import NVIDIA, gpus_in, short_gpu
from hearth.base.systems import release_in
from hearth.base.text import card_memory, plain
from hearth_controller.discover.probe import MARK
from hearth_controller.driver.cards import card
from hearth_controller.inventory.hostkeys import PublicKey

Login = Literal["local", "key", "password", "refused", "silent"]
"""How a machine answered.

`local` is this computer, `key` accepted a key, `password` asks for one, `refused` answers and
accepts neither, `silent` does not answer.
"""

MDNS = "mDNS"
"""Source of machines that this user may never have logged in to."""

_SUDO_GROUPS = {"sudo", "wheel", "admin"}
_NO_LAN = ipaddress.ip_network("100.64.0.0/10")
"""Addresses of Tailscale and the like, which are on no cable."""


@dataclass(frozen=True)
class SshTarget:
    """A machine that may belong to the home, as its source names it.

    `host` is the word for ssh. `user` and `port` override ssh's own. `asked` means that a person
    named it on the command line or in an answer.
    """

    host: str
    source: str
    name: str = ""
    user: str = ""
    port: int = 0
    asked: bool = False


@dataclass(frozen=True)
class Route:
    """The connection that ssh makes to a candidate.

    `address` is the resolved one, '' if there is none; `options` are ssh's own after reading
    its configuration (`ssh -G`), each with the first of its values.
    """

    host: str
    address: str
    user: str
    port: int
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def proxied(self) -> bool:
        """Whether the connection goes through another machine or a program."""
        return any(
            self.options.get(name, "none") != "none" for name in ("proxyjump", "proxycommand")
        )


@dataclass(frozen=True)
class Facts:
    """Facts that a machine reported about itself. All texts are of a stranger, without controls."""

    hostname: str
    arch: str
    release: Mapping[str, str]
    nics: tuple[Nic, ...]
    speeds: Mapping[str, int]
    gpus: tuple[Mapping[str, Any], ...]
    driver: str
    battery: bool
    sudo: bool
    user: str
    came_in: str

    @property
    def system(self) -> str:
        """The short name of its system, such as `Debian 12`."""
        return f"{self.release['id'].title()} {self.release['version']}".strip() or "?"

    @property
    def gpu(self) -> str:
        """The short names of its NVIDIA GPUs with their memory, '' without any."""
        sizes = [gpu["memory_mib"] for gpu in self.gpus if gpu["memory_mib"]]
        size = f" {card_memory(min(sizes))}" if sizes else ""
        return f"{short_gpu(self.gpus)}{size}"

    @property
    def macs(self) -> frozenset[str]:
        """The MACs of its ordinary NICs, which identify a machine later."""
        return frozenset(nic.mac for nic in self.nics if nic.ordinary and nic.mac)

    def speed(self, nic: Nic) -> int:
        """Return the speed of a NIC's link in Mbit/s, 0 if it is unknown."""
        return self.speeds.get(nic.name, 0)

    def held(self) -> list[tuple[Nic, Held]]:
        """Return the IPv4 addresses that can be on a home's network."""
        return [
            (nic, held)
            for nic in self.nics
            if nic.ordinary and nic.cable
            for held in nic.held
            if not (at := ipaddress.ip_address(held.address)).is_loopback
            and not at.is_link_local
            and at not in _NO_LAN
        ]


@dataclass(frozen=True)
class Machine:
    """A candidate that was tried: the route to it, its answer, and its facts if it let us in.

    `trouble` is the reason why there are no facts. `keys` are its host keys; `new_key` means that
    this user has not accepted them before.
    """

    candidate: SshTarget
    route: Route
    login: Login
    facts: Facts | None = None
    trouble: str = ""
    keys: tuple[PublicKey, ...] = ()
    new_key: bool = False

    @property
    def reached_at(self) -> str:
        """The IPv4 address that SSH reached the machine by, '' if that is unknown.

        Only behind a proxy, or with IPv6, the machine itself knows it.
        """
        reported = self.facts.came_in if self.facts else ""
        known = (
            (reported, self.route.address) if self.route.proxied else (self.route.address, reported)
        )
        return next(filter(is_ipv4, known), "")


def facts_in(answer: str) -> Facts | None:
    """Return the facts in the output of the probe, None if it holds none.

    The output is a stranger's: a login shell may print before it, and nothing in it is trusted.
    """
    lines = [line for line in answer.splitlines() if line.startswith(MARK)]
    try:
        return facts_of(json.loads(lines[-1].removeprefix(MARK)))
    except (IndexError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def facts_of(report: Mapping[str, Any]) -> Facts:
    """Return the facts in the probe's report. Raises an error of Python for a malformed one."""
    nics = nics_of(report["links"], report["routes"], set(report["wireless"]))
    for _, held in ((nic, held) for nic in nics for held in nic.held):
        ipaddress.ip_interface(f"{held.address}/{held.prefix}")
    listed = gpus_in(_line(report["gpus"], keep="\n"))
    return Facts(
        hostname=_line(report["hostname"]),
        arch=_line(report["arch"]),
        release=release_in(_line(report["release"], keep="\n")),
        nics=tuple(nic for nic in nics if nic.name == _line(nic.name)),
        speeds={nic: int(text) for nic, text in report["speeds"].items() if text.isdecimal()},
        gpus=tuple(listed or _on_bus(report["cards"])),
        driver=listed[0]["driver"] if listed else "",
        battery=bool(report["battery"]),
        sudo=bool(report["root"]) or bool(_SUDO_GROUPS & set(report["groups"])),
        user=_line(report["user"]),
        came_in=_line(report["came_in"]),
    )


def _on_bus(cards: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """Return the NVIDIA GPUs on the PCI bus: without a driver nothing knows their memory."""
    found = [card(device) for vendor, device in cards if vendor == NVIDIA]
    unknown = {"memory_mib": None, "driver": ""}
    return [
        {"name": each.name, "capability": str(each.capability / 10)} | unknown for each in found
    ]


def _line(text: str, keep: str = "") -> str:
    """Return a stranger's text without control characters other than `keep`."""
    return "".join(c for c in plain(text) if c.isprintable() or c in keep)
