"""The current and the wanted rules of firewalls; the ruleset was printed by nft 1.0.6."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ansible.module_utils.hearth_node.network.firewall import (
    firewalld_sources,
    firewalld_zone,
    shut_by_iptables,
    shut_by_nftables,
    ufw_commands,
)

# Of fixtures/firewall/ruleset.nft, by `nft --json list ruleset`.
RULESET = json.loads(
    (Path(__file__).parents[3] / "fixtures" / "firewall" / "ruleset.json").read_text()
)
HEAD = "Added user rules (see 'ufw status' for running firewall):\n"


def test_ufw_gets_a_rule_a_node_in_front_of_all_others():
    assert ufw_commands(HEAD + "ufw allow 22/tcp\n", ["10.0.0.2", "fd00::3"]) == [
        ["ufw", "prepend", "allow", "from", "10.0.0.2", "comment", "hearth"],
        ["ufw", "prepend", "allow", "from", "fd00::3", "comment", "hearth"],
    ]


def test_ufw_loses_the_rule_of_a_node_that_is_gone_and_keeps_those_of_its_owner():
    added = (
        f"{HEAD}ufw allow from 10.0.0.2 comment 'hearth'\n"
        "ufw allow from 10.0.0.9 comment 'hearth'\n"
        "ufw allow from 10.0.0.8 comment 'not hearth'\n"
        "ufw allow from 10.0.0.7\n"
        "ufw deny from 10.0.0.6 comment 'hearth'\n"
    )
    wanted = ["10.0.0.2", "10.0.0.7"]  # the owner's own rule does for 10.0.0.7
    assert ufw_commands(added, wanted) == [["ufw", "delete", "allow", "from", "10.0.0.9"]]
    assert ufw_commands(HEAD + "(None)\n", []) == []


def test_firewalld_gets_a_zone_with_the_peers():
    zone = ElementTree.fromstring(firewalld_zone(["10.0.0.2", "fd00::3"]))
    assert zone.get("target") == "ACCEPT"
    assert [each.get("address") for each in zone.iter("source")] == ["10.0.0.2", "fd00::3"]


def test_what_firewalld_has_in_other_zones_is_read():
    active = (
        "hearth\n  sources: 10.0.0.2 fd00::3\npublic (default)\n  interfaces: eno1\n"
        "work\n  interfaces: wg0\n  sources: 10.0.0.9\n"
    )
    assert firewalld_sources(active) == {
        "10.0.0.2": "hearth",
        "fd00::3": "hearth",
        "10.0.0.9": "work",
    }
    assert firewalld_sources("") == {}


def test_a_ruleset_of_nftables_is_read():
    come_in = [
        "198.51.100.11",  # by name in the set
        "198.51.100.13",  # by a prefix in the set
        "10.1.2.3",  # by a prefix in the rule
        "192.168.1.50",  # by a range in the rule
    ]
    shut = ["198.51.100.14", "192.168.1.61", "192.168.7.7"]  # the last comes in to port 80 only
    (finding,) = shut_by_nftables(RULESET, [*come_in, *shut], "eno1")
    rule = f"'ip saddr {{ {', '.join(shut)} }} accept'"
    assert f"nft insert rule inet filter input {rule}" in finding
    (finding,) = shut_by_nftables(RULESET, ["fd00::1"], "eno1")
    assert "'ip6 saddr { fd00::1 } accept'" in finding
    assert shut_by_nftables(RULESET, shut, "wg0") == []  # an interface that is trusted


def test_a_ruleset_that_turns_nobody_away_is_no_finding():
    """Only the chain that accepts by default is left: what it drops is not ours."""
    left = [item for item in RULESET["nftables"] if '"table": "filter"' not in json.dumps(item)]
    assert any("chain" in item for item in left)
    assert shut_by_nftables({"nftables": left}, ["198.51.100.14"], "eno1") == []


def test_a_chain_that_ends_with_reject_turns_away_like_one_whose_policy_is_drop():
    accepting = copy.deepcopy(RULESET)
    for item in accepting["nftables"]:
        if "chain" in item:
            item["chain"]["policy"] = "accept"
    assert len(shut_by_nftables(accepting, ["198.51.100.14"], "eno1")) == 1


OPEN = "-P INPUT ACCEPT\n-A INPUT -s 1.2.3.4/32 -j DROP\n"
SHUT = (
    "-P INPUT DROP\n-A INPUT -i lo -j ACCEPT\n"
    '-A INPUT -s 10.0.0.2/32 -m comment --comment "a node" -j ACCEPT\n'
    "-A INPUT -s 10.0.0.3/32 -p tcp -m tcp --dport 22 -j ACCEPT\n"
    "-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
    "-A INPUT -s 10.1.0.0/16 -i eno1 -j ACCEPT\n"
)


@pytest.mark.parametrize(
    "listed, peers, said",
    [
        (OPEN, ["10.0.0.2"], ""),
        (SHUT, ["10.0.0.2", "10.1.7.7"], ""),
        (SHUT, ["10.0.0.2", "10.0.0.3", "10.0.0.4"], "-s 10.0.0.3,10.0.0.4 -j ACCEPT"),
        ("-P INPUT ACCEPT\n-A INPUT -j REJECT\n", ["10.0.0.2"], "-s 10.0.0.2 -j ACCEPT"),
        (SHUT, ["fd00::1"], ""),
    ],
)
def test_a_ruleset_of_iptables_is_read(listed, peers, said):
    findings = shut_by_iptables(listed, peers, "eno1")
    assert len(findings) == bool(said)
    assert said in "".join(findings)
