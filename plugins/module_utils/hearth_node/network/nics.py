"""Inspect this machine's network: its NICs, and the manager of each.

`see` and `manager_of` run commands; the rest is pure.
"""

from __future__ import annotations

import glob
import ipaddress
import os
import re
from dataclasses import dataclass

from ansible.module_utils.hearth.base.commands import output
from ansible.module_utils.hearth.base.nics import Nic, is_ipv4, nics_of
from ansible.module_utils.hearth_node.base import text_of


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


def see() -> list[Nic]:
    """Return the NICs of this machine."""
    wireless = {
        path.split("/")[4]
        for kind in ("wireless", "phy80211")
        for path in glob.glob(f"/sys/class/net/*/{kind}")
    }
    routes = output("ip", "-j", "-4", "route", "show", "default")
    return nics_of(output("ip", "-j", "-d", "address"), routes, wireless)


def nic_with(nics: list[Nic], address: str) -> str:
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
