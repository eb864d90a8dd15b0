#!/usr/bin/python
"""Ansible module: set a node's host name, and list the other nodes in /etc/hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_names
short_description: Host name and /etc/hosts of a node, so that a name means its cluster address
description:
  - The host name is the node's name in the inventory, in lower case and up to the first dot.
  - Loopback lines of /etc/hosts that name a node become comments. In the end the node resolves
    every name as other programs would; what comes out wrong is a finding, and fails.
  - Where cloud-init is installed, it is set to leave both alone.
options:
  node:
    description: Name of this node in the inventory.
    type: str
    required: true
  nodes:
    description: Cluster address of each node, by its name in the inventory.
    type: dict
    required: true
  set_hostname:
    description: V(false) leaves the host name; in /etc/hosts it then stands beside the node's.
    type: bool
    default: true
"""

import os
import re
import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.changes.record import Change, Journal, recorded, result
from ansible.module_utils.hearth_node.network.hosts import (
    before_files,
    elsewhere,
    host_name,
    rewritten,
    wrong_names,
)

_HOSTS, _HOSTNAME = "/etc/hosts", "/etc/hostname"
_CLOUD = "/etc/cloud/cloud.cfg.d"
_CLOUD_TEXT = b"""\
# Hearth keeps /etc/hosts and the host name of this node.
manage_etc_hosts: false
preserve_hostname: true
"""
# A datasource's settings override every file in /etc/cloud.
_CLOUD_ASKED = "/var/lib/cloud/instance/cloud-config.txt"


def set_name(record: Journal, name: str) -> list[Change]:
    """Set the machine's host name, at once and for the next boot."""
    changes = []
    if text_of(_HOSTNAME).strip() != name:
        known = os.path.exists(_HOSTNAME)
        back = ["hostname", "--file", _HOSTNAME] if known else ["hostname", socket.gethostname()]
        changes.append(record.write(_HOSTNAME, f"{name}\n".encode(), then=[back]))
    if socket.gethostname() != name:
        if not record.check:
            socket.sethostname(name)
        changes.append(Change(True))
    return changes


def calm_cloud(record: Journal) -> list[Change]:
    """Keep cloud-init, if present, from rewriting host name and /etc/hosts at every boot."""
    if not os.path.isdir(_CLOUD):
        return []
    path = os.path.join(_CLOUD, "99-hearth.cfg")
    return [record.write(path, _CLOUD_TEXT)]


def cloud_insists() -> list[str]:
    """Return a finding if this machine's cloud-init is set to rewrite /etc/hosts."""
    if wanted := re.search(
        r"^manage_etc_hosts:\s*(?!false)(\S+)", text_of(_CLOUD_ASKED), re.M | re.I
    ):
        return [
            f"cloud-init rewrites /etc/hosts at every boot, since this machine's user data says "
            f"manage_etc_hosts: {wanted[1]}; set it to false there"
        ]
    return []


def resolved(name: str) -> set[str]:
    """Return all addresses that a name has on this machine."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        return set()


def misled(nodes: dict[str, str]) -> list[str]:
    """Return a finding for each name that this machine does not resolve to its node's address."""
    first = ", ".join(before_files(text_of("/etc/nsswitch.conf")))
    hint = f"; /etc/nsswitch.conf asks {first} first: put files before it" if first else ""
    findings = []
    for name, address in nodes.items():
        if (found := resolved(name)) != {address}:
            got = ", ".join(sorted(found)) or "nothing"
            findings.append(f"{name} resolves to {got} here, not to {address} alone{hint}")
    return findings


def renaming(name: str) -> dict[str, str]:
    """Return the `note` on a host name that changes; empty if it stays."""
    present = socket.gethostname()
    if name == present:
        return {}
    return {
        "note": f"host name {present} becomes {name} (names_set_hostname: false keeps it); on a "
        "desktop in use log in anew afterwards"
    }


def main() -> None:
    """Run the module; return a `note` if the host name changes."""
    module = AnsibleModule(
        argument_spec={
            "node": {"type": "str", "required": True},
            "nodes": {"type": "dict", "required": True},
            "set_hostname": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    node, nodes, check = module.params["node"], module.params["nodes"], module.check_mode
    wanted = module.params["set_hostname"]
    hosts = text_of(_HOSTS)
    findings = wrong_names(nodes) or [*elsewhere(hosts, nodes), *cloud_insists()]
    if findings:
        module.fail_json(msg="\n".join(findings), findings=findings)
    also = "" if wanted else socket.gethostname()
    note = renaming(host_name(node)) if wanted else {}
    text = rewritten(hosts, nodes, node, also).encode(errors="surrogateescape")
    with recorded(module, "the names cannot be set"):
        record = Journal("names", check)
        # /etc/hosts first: sudo complains about a host name that it cannot resolve.
        changes = [record.write(_HOSTS, text)]
        changes += set_name(record, host_name(node)) if wanted else []
        changes += calm_cloud(record)
    wanted = {host_name(name): address for name, address in nodes.items()}
    wanted |= {also: nodes[node]} if also else {}
    if findings := [] if check else misled(wanted):
        module.fail_json(msg="\n".join(findings), findings=findings)
    module.exit_json(**result(changes), **note)


if __name__ == "__main__":
    main()
