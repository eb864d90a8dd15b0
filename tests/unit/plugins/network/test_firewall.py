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
from support.modules import call

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
    """Only the chain that accepts by default is left: its drops are not ours."""
    left = [item for item in RULESET["nftables"] if '"table": "filter"' not in json.dumps(item)]
    assert any("chain" in item for item in left)
    assert shut_by_nftables({"nftables": left}, ["198.51.100.14"], "eno1") == []


def test_a_chain_that_ends_with_reject_turns_away_like_one_whose_policy_is_drop():
    accepting = copy.deepcopy(RULESET)
    for item in accepting["nftables"]:
        if "chain" in item:
            item["chain"]["policy"] = "accept"
    assert len(shut_by_nftables(accepting, ["198.51.100.14"], "eno1")) == 1


def matches(left: dict, right: object, op: str = "==") -> dict:
    return {"match": {"op": op, "left": left, "right": right}}


NEW = matches({"ct": {"key": "state"}}, "new", "in")
PORT = {"payload": {"protocol": "tcp", "field": "dport"}}
FLAGS = {"payload": {"protocol": "tcp", "field": "flags"}}
MASKED = {"&": [FLAGS, ["fin", "syn", "rst", "ack"]]}
SADDR = {"payload": {"protocol": "ip", "field": "saddr"}}
REJECT = {"reject": {"type": "tcp reset"}}
DROP = {"drop": None}


@pytest.mark.parametrize(
    ("turns_away", "expr"),
    [
        (True, [NEW, DROP]),
        (True, [matches({"ct": {"key": "state"}}, {"set": ["new", "untracked"]}), DROP]),
        (False, [matches({"ct": {"key": "state"}}, "invalid", "in"), DROP]),
        (True, [matches(PORT, {"range": [1024, 65535]}), DROP]),
        (True, [matches(PORT, 1024, ">"), DROP]),
        (True, [matches(PORT, {"set": [22, {"range": [32768, 65535]}]}), NEW, REJECT]),
        (True, [matches(PORT, 22, "!="), DROP]),
        (False, [matches(PORT, {"set": [22, 80]}), DROP]),
        (False, [matches({"payload": {"protocol": "udp", "field": "dport"}}, 40000), DROP]),
        (True, [matches(MASKED, "syn"), {"counter": {"packets": 0, "bytes": 0}}, DROP]),
        (True, [matches(FLAGS, "syn", "in"), DROP]),
        (False, [matches(MASKED, "syn", "!="), NEW, DROP]),
        (False, [matches({"&": [FLAGS, ["fin", "syn"]]}, ["fin", "syn"]), DROP]),
        (True, [matches({"meta": {"key": "l4proto"}}, {"set": ["tcp", "udp"]}), DROP]),
        (False, [matches({"meta": {"key": "iifname"}}, "eno1", "!="), NEW, DROP]),
        (False, [matches(SADDR, {"prefix": {"addr": "198.51.100.0", "len": 24}}, "!="), DROP]),
        (True, [matches(SADDR, {"prefix": {"addr": "10.0.0.0", "len": 8}}, "!="), DROP]),
        (False, [NEW, {"limit": {"rate": 10, "inv": True}}, DROP]),
        (False, [{"xt": {"type": "match", "name": "conntrack"}}, DROP]),
        (True, [NEW, {"jump": {"target": "more"}}]),
        (False, [matches(PORT, 22), {"goto": {"target": "more"}}]),
    ],
)
def test_a_chain_that_accepts_by_default_may_still_turn_new_connections_away(turns_away, expr):
    here = {"family": "inet", "table": "own"}
    base = here | {"name": "in", "type": "filter", "hook": "input", "policy": "accept"}
    listed = [
        {"chain": base},
        {"chain": here | {"name": "more"}},
        {"rule": here | {"chain": "in", "expr": expr}},
        {"rule": here | {"chain": "more", "expr": [DROP]}},
    ]
    findings = shut_by_nftables({"nftables": listed}, ["198.51.100.14"], "eno1")
    assert ["nft insert rule inet own in" in each for each in findings] == [True] * turns_away


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
        *(
            (f"-P INPUT ACCEPT\n-A INPUT {rule}\n", ["10.0.0.2"], "-s 10.0.0.2" * turns_away)
            for turns_away, rule in (
                (True, "-m conntrack --ctstate NEW -j DROP"),
                (True, "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j REJECT --reject-with x"),
                (True, '-p tcp -m comment --comment "a b" -m tcp --dport 1024:65535 -j DROP'),
                (True, "-p tcp -m multiport --dports 22,1024:65535 -j DROP"),
                (True, "-s 10.0.0.0/8 -i eno1 -j DROP"),
                (
                    False,
                    "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -m state --state NEW -j DROP",
                ),
                (False, "-p tcp -m tcp --dport 22 -j DROP"),
                (False, "-m state --state INVALID -j DROP"),
                (False, "-i wg0 -j DROP"),
                (False, "-p udp -j DROP"),
            )
        ),
    ],
)
def test_a_ruleset_of_iptables_is_read(listed, peers, said):
    findings = shut_by_iptables(listed, peers, "eno1")
    assert len(findings) == bool(said)
    assert said in "".join(findings)


def test_conditions_of_iptables_that_nft_does_not_show_are_read_from_iptables(program):
    here = {"family": "ip", "table": "filter"}
    base = here | {"name": "INPUT", "type": "filter", "hook": "input", "policy": "accept"}
    opaque = [{"xt": {"type": "match", "name": "conntrack"}}, DROP]
    rules = [{"chain": base}, {"rule": here | {"chain": "INPUT", "expr": opaque}}]
    program("nft", f"echo '{json.dumps({'nftables': rules})}'")
    program("iptables", "echo '-A INPUT -m conntrack --ctstate NEW -j DROP'")
    answer = call("hearth_firewall", peers=["198.51.100.14"])
    assert answer["failed"]
    assert "iptables -I INPUT -s 198.51.100.14 -j ACCEPT" in answer["msg"]
