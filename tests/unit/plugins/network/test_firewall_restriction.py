"""Only the nodes reach the ports of a run: the rules, and their way onto a machine and off it.

fixtures/firewall/restricted.json is how nft 1.0.6 reads the rules of restricted.nft.
"""

from __future__ import annotations

import ipaddress
import json
import re
from pathlib import Path

import pytest
from ansible.module_utils.hearth_node.changes.record import Journal
from ansible.module_utils.hearth_node.network.firewall import (
    first_port,
    logins_ports,
    restriction_rules,
    shut_by_nftables,
)
from support.plugins import load
from support.repository import ROOT

firewall = load("modules", "hearth_firewall")

FIXTURES = Path(__file__).parents[3] / "fixtures" / "firewall"
RULESET = json.loads((FIXTURES / "restricted.json").read_text())
NODES = ["10.0.0.2", "10.0.0.3", "fd00::3"]


def verdict(source: str, port: int, card: str = "eno1", flags: str = "syn") -> str:
    """Return the verdict of the ruleset for a packet of TCP."""
    kind = "ip6" if ipaddress.ip_address(source).version == 6 else "ip"
    packet = {"iifname": card, kind: source, "dport": port, "flags": flags}
    for rule in (item["rule"]["expr"] for item in RULESET["nftables"] if "rule" in item):
        if all(fits(part["match"], packet) for part in rule[:-1]):
            return next(iter(rule[-1]))
    return "accept"  # the policy


def fits(match: dict, packet: dict) -> bool:
    left, right = match["left"], match["right"]
    if "&" in left:  # of the flags fin, syn, rst and ack
        return packet["flags"] == right
    key = left.get("meta", left.get("payload"))
    name = key["protocol"] if key.get("field") == "saddr" else key.get("field", key.get("key"))
    if not isinstance(right, dict):
        return packet.get(name) == right
    if "set" in right:
        return packet.get(name) in right["set"]
    low, high = right["range"]
    return low <= packet[name] <= high


def test_the_rules_are_those_that_nft_has_read():
    text = restriction_rules(NODES, 32768, [22, 40022])
    assert text == (FIXTURES / "restricted.nft").read_text()


@pytest.mark.parametrize("port", [32768, 45000, 65535])
def test_new_connections_to_the_ports_of_a_run_come_from_the_nodes_only(port):
    assert {verdict(node, port) for node in NODES} == {"accept"}
    assert {verdict(stranger, port) for stranger in ("10.0.0.9", "fd00::9")} == {"drop"}
    assert verdict("10.0.0.9", port, card="lo") == "accept"
    assert verdict("10.0.0.9", port, flags="ack") == "accept"  # of a connection from here


@pytest.mark.parametrize("port", [22, 80, 32767, 40022])
def test_other_ports_and_logins_are_as_before(port):
    assert verdict("10.0.0.9", port) == "accept"


def test_the_stage_does_not_take_these_rules_for_ones_that_turn_nodes_away():
    assert shut_by_nftables(RULESET, ["10.0.0.9", "fd00::9"], "eno1") == []


def test_what_the_machine_says_of_its_ports_is_read():
    assert first_port("32768\t60999\n") == 32768
    assert logins_ports("port 40022\nport 22\naddressfamily any\nxport 1\n") == [22, 40022]
    assert "dport {" not in restriction_rules(NODES, 32768, [])


def test_the_rule_for_a_chain_of_ones_own_drops_what_the_stage_drops():
    page = (ROOT / "docs" / "safety.md").read_text()
    (rule,) = re.findall(r'^ip saddr != \{ (.*) \} iifname != "lo" (.*)$', page, re.MULTILINE)
    nodes, dropped = rule
    lines = restriction_rules(nodes.split(", "), 32768, []).splitlines()
    assert {f"ip saddr {{ {nodes} }} accept", dropped} <= {line.strip() for line in lines}


@pytest.fixture
def machine(tmp_path, monkeypatch, program):
    """Stand-ins: a root file system, the record, nft with its tables, systemd and sshd."""
    root = tmp_path / "root"
    (root / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True)
    monkeypatch.setattr(firewall, "_RULES", f"{root}/etc/hearth/firewall.nft")
    monkeypatch.setattr(firewall, "_UNITS", f"{root}/etc/systemd/system")
    record = str(tmp_path / "record")
    monkeypatch.setattr(firewall, "Journal", lambda *given: Journal(*given, folder=record))
    program("sshd", "echo port 22")
    loaded = tmp_path / "loaded"
    program("nft", f"case $1 in --version) echo v1;; list) cat {loaded};; add*) rm {loaded};; esac")
    program("systemctl", f"[ $1 != start ] || echo table >{loaded}")
    return tmp_path


def files(machine: Path) -> dict[str, str]:
    return {
        str(path.relative_to(machine / "root")): path.read_text()
        for path in (machine / "root").rglob("*")
        if path.is_file()
    }


def test_the_rules_are_laid_down_once_loaded_and_taken_back(machine):
    assert firewall.restricted(NODES, True, True)[0]
    assert files(machine) == {}
    changed, findings = firewall.restricted(NODES, True, False)
    assert (len(changed), findings) == (4, [])
    assert (machine / "loaded").exists()
    laid = files(machine)
    for node in NODES:
        assert node in laid["etc/hearth/firewall.nft"]
    unit = laid["etc/systemd/system/hearth-firewall.service"]
    assert f"{machine}/root/etc/hearth/firewall.nft" in unit
    for target in ("multi-user.target", "nftables.service"):
        assert laid[f"etc/systemd/system/{target}.wants/hearth-firewall.service"] == unit
    assert firewall.restricted(NODES, True, False) == ([], [])

    (machine / "loaded").unlink()  # as by `nft flush ruleset`
    assert firewall.restricted(NODES, True, False) != ([], [])
    assert (machine / "loaded").exists()
    assert firewall.restricted(NODES[:1], True, False)[0] == [
        f"{machine}/root/etc/hearth/firewall.nft"
    ]
    assert "fd00::3" not in files(machine)["etc/hearth/firewall.nft"]

    assert len(firewall.restricted(NODES, False, True)[0]) == 4
    assert files(machine) != {}
    assert len(firewall.restricted(NODES, False, False)[0]) == 4
    assert files(machine) == {}
    assert not (machine / "loaded").exists()
    assert firewall.restricted(NODES, False, False) == ([], [])


def test_without_nft_nothing_is_changed_and_the_package_is_named(machine, program):
    program("nft", "exit 127")
    changed, (finding,) = firewall.restricted(NODES, True, False)
    assert changed == []
    assert "apt install nftables" in finding
    assert files(machine) == {}
