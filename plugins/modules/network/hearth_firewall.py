#!/usr/bin/python
"""Ansible module: let the other nodes through an active firewall."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_firewall
short_description: Let in the other nodes where a firewall is active
description:
  - NCCL and Gloo listen on ports that the kernel picks, so everything from the other nodes' cluster
    addresses is let in. What the controller may do is not touched, and no firewall is
    switched on.
  - ufw gets a rule a node, with the comment C(hearth); rules of nodes that are gone are removed.
    firewalld gets a zone C(hearth). Rules that somebody wrote for nftables or iptables
    are never edited; if they turn a node away that is a finding, with the rule to add, and fails.
options:
  peers:
    description: Cluster addresses of the other nodes. None takes back what was done before.
    type: list
    elements: str
    required: true
"""

import json
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth_node.base import output, text_of
from ansible.module_utils.hearth_node.changes.record import Journal, RecordError, run_all
from ansible.module_utils.hearth_node.network.firewall import (
    firewalld_sources,
    firewalld_zone,
    shut_by_iptables,
    shut_by_nftables,
    ufw_commands,
)

_ZONE = "/etc/firewalld/zones/hearth.xml"
_RELOAD = ["firewall-cmd", "--reload"]


def ufw_is_active() -> bool:
    """Return whether ufw is active; queried only if it is enabled, since the query is slow."""
    enabled = re.search(r"^ENABLED=[\"']?yes", text_of("/etc/ufw/ufw.conf"), re.M | re.I)
    return bool(enabled) and "Status: active" in output("ufw", "status")


def with_ufw(peers: list[str], check: bool) -> tuple[list[str], list[str]]:
    """Bring ufw's rules up to date; return the changes, and findings."""
    commands = ufw_commands(output("ufw", "show", "added"), peers)
    findings = [] if check else run_all(commands)
    return [" ".join(command) for command in commands], findings


def with_firewalld(peers: list[str], check: bool) -> tuple[list[str], list[str]]:
    """Bring firewalld's zone up to date; return the changes, and findings."""
    record = Journal("firewall", check)
    if not peers:
        ours = [entry.path for entry in record.entries() if entry.path == _ZONE]
        for path in ours:
            record.restore(path)
        return ours, [] if check else record.settle()
    zones = firewalld_sources(output("firewall-cmd", "--get-active-zones"))
    findings = [
        f"firewalld has {peer} in the zone {zones[peer]}, where Hearth lets it be; for the other "
        f"nodes to come in: firewall-cmd --permanent --zone={zones[peer]} --remove-source={peer} "
        "and then firewall-cmd --reload"
        for peer in peers
        if zones.get(peer, "hearth") != "hearth"
    ]
    if findings:
        return [], findings  # firewalld rejects an address that is in another zone
    changed = record.write(_ZONE, firewalld_zone(peers).encode(), then=[_RELOAD]).changed
    loaded = all(peer in zones for peer in peers)
    if changed or not loaded:
        return [_ZONE], [] if check else run_all([_RELOAD])
    return [], []


def with_own_rules(peers: list[str]) -> tuple[str, list[str]]:
    """Return the packet filter of a machine without ufw and firewalld, and findings."""
    if not peers:
        return "none", []
    way = re.search(r" dev (\S+)", output("ip", "-oneline", "route", "get", peers[0]))
    card = way[1] if way else ""
    if listed := output("nft", "--json", "list", "ruleset"):
        return "nftables", shut_by_nftables(json.loads(listed), peers, card)
    if listed := output("iptables", "-S"):
        return "iptables", shut_by_iptables(listed, peers, card)
    return "none", []


def main() -> None:
    """Run the module; return which `firewall` decides here, and `findings` on failure."""
    module = AnsibleModule(
        argument_spec={"peers": {"type": "list", "elements": "str", "required": True}},
        supports_check_mode=True,
    )
    peers, check = module.params["peers"], module.check_mode
    changed: list[str] = []
    try:
        if ufw_is_active():
            firewall = "ufw"
            changed, findings = with_ufw(peers, check)
        elif "running" in output("firewall-cmd", "--state"):
            firewall = "firewalld"
            changed, findings = with_firewalld(peers, check)
        else:
            firewall, findings = with_own_rules(peers)
    except (RecordError, OSError) as error:
        module.fail_json(msg=f"the firewall cannot be opened for the other nodes: {error}")
    answer = {"changed": bool(changed), "firewall": firewall}
    if changed:
        answer["diff"] = {"prepared": "\n".join(changed) + "\n"}
    if findings:
        module.fail_json(msg="\n".join(findings), findings=findings, **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
