"""Inspect this machine's network: its NICs, and the manager of each.

The parsers are pure; `see` and `manager_of` run commands.
"""

from __future__ import annotations

import glob
import ipaddress
import json
import os
import re
from dataclasses import dataclass
from typing import Any

from ansible.module_utils.hearth_node.base import output, text_of

# Virtual NICs that programs create; none is chosen as the cluster's NIC automatically.
_MADE_BY_PROGRAMS = re.compile(
    r"lo|(docker|virbr|tailscale|wg|tun|tap|zt|vmnet|cni|flannel|podman|lxc|lxdbr)\d*.*"
    r"|(br-|veth|cali|dummy).*"
)


def is_ipv4(text: str) -> bool:
    """Return whether `text` is an IPv4 address."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Held:
    """An IPv4 address that a NIC has; `dynamic` if it was leased by a DHCP server."""

    address: str
    prefix: int
    dynamic: bool


@dataclass(frozen=True)
class Nic:
    """A network interface; `gateway` is that of its default route, or empty.

    `held` are its IPv4 addresses, `sixes` its IPv6 ones; `leads` if the best default route is its.
    `mtu` is the largest packet in bytes, `most` the largest that the NIC can be set to; 0: unknown.
    """

    name: str
    index: int
    mac: str
    cable: bool
    held: tuple[Held, ...] = ()
    sixes: tuple[str, ...] = ()
    gateway: str = ""
    wireless: bool = False
    leads: bool = False
    mtu: int = 0
    most: int = 0

    @property
    def ordinary(self) -> bool:
        """Whether it is not a program's virtual NIC."""
        return not _MADE_BY_PROGRAMS.fullmatch(self.name)

    @property
    def addresses(self) -> tuple[str, ...]:
        """All its addresses, IPv4 first."""
        return (*(held.address for held in self.held), *self.sixes)

    def carries(self, address: str) -> bool:
        """Return whether the NIC has this address, IPv4 or IPv6."""
        wanted = ipaddress.ip_address(address)
        return any(ipaddress.ip_address(each) == wanted for each in self.addresses)

    def has(self, address: str) -> Held | None:
        """Return the NIC's entry for this address, or None."""
        return next((held for held in self.held if held.address == address), None)


@dataclass(frozen=True)
class Manager:
    """The network manager that configures a NIC.

    `kind` is `networkd`, `networkmanager`, `ifupdown` or empty; `definition` the key of netplan's
    definition, if netplan wrote it; `file` the manager's configuration file; `uuid` the active
    profile of NetworkManager; `dns` the name servers in force.
    """

    kind: str = ""
    definition: str = ""
    file: str = ""
    uuid: str = ""
    dns: tuple[str, ...] = ()


def nics_of(links: str, routes: str, wireless: set[str]) -> list[Nic]:
    """Return the NICs in the output of `ip -j -d address` and `ip -j -4 route show default`.

    `wireless` are the names of the Wi-Fi NICs. If a NIC has several default routes, the one
    with the lowest metric is used.
    """
    gateways: dict[str, str] = {}
    for route in sorted(_read(routes), key=lambda each: each.get("metric", 0)):
        if "dev" in route:
            gateways.setdefault(route["dev"], route.get("gateway", ""))
    leading = next(iter(gateways), "")
    return [
        Nic(
            name=link["ifname"],
            index=link["ifindex"],
            mac=link.get("address", "").lower(),
            cable="LOWER_UP" in link["flags"],
            held=tuple(
                Held(each["local"], each["prefixlen"], bool(each.get("dynamic")))
                for each in link.get("addr_info", [])
                if each["family"] == "inet"
            ),
            sixes=tuple(
                each["local"] for each in link.get("addr_info", []) if each["family"] == "inet6"
            ),
            gateway=gateways.get(link["ifname"], ""),
            wireless=link["ifname"] in wireless,
            leads=link["ifname"] == leading,
            mtu=link.get("mtu", 0),
            most=link.get("max_mtu", 0),
        )
        for link in _read(links)
        if link
    ]


def _read(text: str) -> list[dict[str, Any]]:
    return json.loads(text) if text.strip() else []


def see() -> list[Nic]:
    """Return the NICs of this machine."""
    wireless = {
        path.split("/")[4]
        for kind in ("wireless", "phy80211")
        for path in glob.glob(f"/sys/class/net/*/{kind}")
    }
    routes = output("ip", "-j", "-4", "route", "show", "default")
    return nics_of(output("ip", "-j", "-d", "address"), routes, wireless)


def carrier(nics: list[Nic], address: str) -> str:
    """Return the name of the NIC that carries an address, '' for none.

    All of 127.0.0.0/8 is the loopback's, which lists its first address only.
    """
    wanted = ipaddress.ip_address(address)
    listed = "127.0.0.1" if wanted.version == 4 and wanted.is_loopback else address
    return next((nic.name for nic in nics if nic.carries(listed)), "")


def networkd_of(state: str) -> Manager | None:
    """Return the manager in a file of /run/systemd/netif/links, if it is networkd."""
    said = dict(line.split("=", 1) for line in state.splitlines() if "=" in line)
    file = said.get("NETWORK_FILE", "")
    if not file or said.get("ADMIN_STATE") in ("unmanaged", None):
        return None
    written_by_netplan = re.fullmatch(r"\d+-netplan-(.+)\.network", os.path.basename(file))
    return Manager(
        "networkd",
        definition=written_by_netplan[1] if written_by_netplan else "",
        file=file,
        dns=tuple(filter(is_ipv4, said.get("DNS", "").split())),
    )


def networkmanager_of(device: str, profiles: str) -> Manager | None:
    """Return the manager from nmcli's output, if NetworkManager has a profile active on the NIC.

    `device` is what `nmcli -t -f GENERAL.CON-UUID,IP4.DNS device show NIC` prints, `profiles` what
    `nmcli -t -f UUID,FILENAME connection show` does (with a backslash before each colon).
    """
    uuid, dns = "", []
    for line in device.splitlines():
        name, _, value = line.partition(":")
        if name == "GENERAL.CON-UUID":
            uuid = value.strip("- ") and value.strip()
        elif name.startswith("IP4.DNS"):
            dns.append(value.strip())
    if not uuid:
        return None
    file = next(
        (
            re.sub(r"\\(.)", r"\1", line.partition(":")[2])
            for line in profiles.splitlines()
            if line.partition(":")[0] == uuid
        ),
        "",
    )
    written_by_netplan = re.fullmatch(
        r"/run/NetworkManager/system-connections/netplan-(.+)\.nmconnection", file
    )
    return Manager(
        "networkmanager",
        definition=written_by_netplan[1] if written_by_netplan else "",
        file=file,
        uuid=uuid,
        dns=tuple(filter(is_ipv4, dns)),
    )


def ifupdown_of(texts: dict[str, str], name: str) -> Manager | None:
    """Return the manager if one of these files (text by path) sets the NIC up for ifupdown."""
    for path, text in texts.items():
        if re.search(rf"^\s*iface\s+{re.escape(name)}\s+inet\b", text, re.MULTILINE):
            return Manager("ifupdown", file=path)
    return None


def manager_of(nic: Nic) -> Manager:
    """Return the manager that configures this NIC."""
    interfaces = ["/etc/network/interfaces", *sorted(glob.glob("/etc/network/interfaces.d/*"))]
    return (
        networkd_of(text_of(f"/run/systemd/netif/links/{nic.index}"))
        or networkmanager_of(
            output("nmcli", "-t", "-f", "GENERAL.CON-UUID,IP4.DNS", "device", "show", nic.name),
            output("nmcli", "-t", "-f", "UUID,FILENAME", "connection", "show"),
        )
        or ifupdown_of({path: text_of(path) for path in interfaces}, nic.name)
        or Manager()
    )
