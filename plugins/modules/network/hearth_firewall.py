#!/usr/bin/python
"""Ansible module: let the other nodes through an active firewall, and keep others out if wanted."""

from __future__ import annotations

DOCUMENTATION = r"""
module: hearth_firewall
short_description: Let in the other nodes where a firewall is active, and keep others out if wanted
description:
  - NCCL and Gloo listen on ports that the kernel picks, so everything from the other nodes' cluster
    addresses is let in. What the controller may do is not touched, and no firewall is
    switched on.
  - ufw gets a rule a node, with the comment C(hearth); rules of nodes that are gone are removed.
    firewalld gets a zone C(hearth). Other rules of nftables or iptables
    are never edited; if they turn a node away that is a finding, with the rule to add, and fails.
options:
  peers:
    description: Cluster addresses of the other nodes.
    type: list
    elements: str
    required: true
  open:
    description: Whether to let them in. V(false) takes back earlier changes.
    type: bool
    default: true
  restrict:
    description:
      - Whether to drop what others send to the ports of a run, by an nftables table of Hearth's own
        that a systemd unit loads at boot. V(false) takes it back.
    type: bool
    default: false
"""

import json
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.hearth.base.commands import output
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.changes.record import Journal, recorded, run_all
from ansible.module_utils.hearth_node.network.firewall import (
    REMOVE,
    TABLE,
    firewalld_sources,
    firewalld_zone,
    first_port,
    logins_ports,
    restriction_rules,
    restriction_unit,
    shut_by_iptables,
    shut_by_nftables,
    ufw_commands,
)

_ZONE = "/etc/firewalld/zones/hearth.xml"
_RELOAD = ["firewall-cmd", "--reload"]

_RULES = "/etc/hearth/firewall.nft"
_UNITS = "/etc/systemd/system"
_UNIT = "hearth-firewall.service"
_AGAIN = ["systemctl", "daemon-reload"]
_PORTS = "/proc/sys/net/ipv4/ip_local_port_range"


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
        return taken_back(record, [_ZONE])
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


def taken_back(record: Journal, paths: list[str]) -> tuple[list[str], list[str]]:
    """Undo the changes of these paths; return those that were changed, and findings."""
    ours = [entry.path for entry in record.entries() if entry.path in paths]
    for path in reversed(ours):
        record.restore(path)
    return ours, [] if record.check else record.settle()


def restricted(peers: list[str], wanted: bool, check: bool) -> tuple[list[str], list[str]]:
    """Keep others than the peers from the ports of a run, or no longer; return as above."""
    record = Journal("firewall", check)
    unit = os.path.join(_UNITS, _UNIT)
    wants = [
        os.path.join(_UNITS, f"{target}.wants", _UNIT)
        for target in ("multi-user.target", "nftables.service")
    ]
    if not wanted:
        return taken_back(record, [_RULES, unit, *wants])
    if not output("nft", "--version"):
        return [], [
            "firewall_restrict needs nft, which is not installed here: apt install nftables"
        ]
    logins = logins_ports(output("sshd", "-T"))
    rules = restriction_rules(peers, first_port(text_of(_PORTS)), logins).encode()
    changes = {
        _RULES: record.write(_RULES, rules, then=[["nft", REMOVE]]),
        unit: record.write(unit, restriction_unit(_RULES).encode(), then=[_AGAIN]),
        **{path: record.link(path, unit) for path in wants},
    }
    changed = [path for path, change in changes.items() if change.changed]
    if not changed and output("nft", "list", "table", *TABLE):
        return [], []
    return changed or [_RULES], [] if check else run_all([_AGAIN, ["systemctl", "start", _UNIT]])


def with_own_rules(peers: list[str]) -> tuple[str, list[str]]:
    """Return the packet filter of a machine without ufw and firewalld, and findings."""
    if not peers:
        return "none", []
    way = re.search(r" dev (\S+)", output("ip", "-oneline", "route", "get", peers[0]))
    card = way[1] if way else ""
    if listed := output("nft", "--json", "list", "ruleset"):
        findings = shut_by_nftables(json.loads(listed), peers, card)
        # Rules that iptables added there may have conditions that only iptables can show.
        if not findings and '"xt"' in listed:
            findings = shut_by_iptables(output("iptables", "-S"), peers, card)
        return "nftables", findings
    if listed := output("iptables", "-S"):
        return "iptables", shut_by_iptables(listed, peers, card)
    return "none", []


def main() -> None:
    """Run the module; return which `firewall` decides here, and `findings` on failure."""
    module = AnsibleModule(
        argument_spec={
            "peers": {"type": "list", "elements": "str", "required": True},
            "open": {"type": "bool", "default": True},
            "restrict": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    peers, check = module.params["peers"] if module.params["open"] else [], module.check_mode
    changed: list[str] = []
    with recorded(module, "the firewall cannot be opened for the other nodes"):
        if ufw_is_active():
            firewall = "ufw"
            changed, findings = with_ufw(peers, check)
        elif "running" in output("firewall-cmd", "--state"):
            firewall = "firewalld"
            changed, findings = with_firewalld(peers, check)
        else:
            firewall, findings = with_own_rules(peers)
        more, others = restricted(module.params["peers"], module.params["restrict"], check)
        changed, findings = changed + more, findings + others
    answer = {"changed": bool(changed), "firewall": firewall}
    if changed:
        answer["diff"] = {"prepared": "\n".join(changed) + "\n"}
    if findings:
        module.fail_json(msg="\n".join(findings), findings=findings, **answer)
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
