"""Firewall rules: let the other nodes in, and keep others from the ports of a run. No I/O.

The present rules are parsed, and the missing ones derived.
"""

from __future__ import annotations

import ipaddress
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from xml.sax.saxutils import quoteattr

# Comment in ufw by which Hearth recognises its own rules.
MARK = "hearth"
_UFW_RULE = re.compile(r"ufw allow from (\S+)(?: comment '(.*)')?")

_OF_A_RUN = range(32768, 65536)
"""Ports on which a run listens: the kernel's for Gloo and NCCL, Hearth's own above them."""


# -- ufw -------------------------------------------------------------------------------------------


def ufw_commands(added: str, peers: Sequence[str]) -> list[list[str]]:
    """Return the commands that make ufw admit exactly the current peers.

    `added` is what `ufw show added` prints, `peers` are the addresses of the other nodes.
    """
    rules = [match for line in added.splitlines() if (match := _UFW_RULE.fullmatch(line.strip()))]
    ours = [rule[1] for rule in rules if rule[2] == MARK]
    present = {rule[1] for rule in rules}
    # Prepended, since ufw applies the first rule that matches.
    new = [["ufw", "prepend", "allow", "from", each] for each in peers if each not in present]
    old = [["ufw", "delete", "allow", "from", each] for each in ours if each not in peers]
    return [*([*command, "comment", MARK] for command in new), *old]


# -- firewalld -------------------------------------------------------------------------------------


def firewalld_zone(peers: Iterable[str]) -> str:
    """Return a firewalld zone that accepts everything from the peers."""
    sources = "".join(f"  <source address={quoteattr(peer)}/>\n" for peer in peers)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<zone target="ACCEPT">\n'
        "  <short>Hearth</short>\n"
        f"  <description>The other nodes of the cluster.</description>\n{sources}</zone>\n"
    )


def firewalld_sources(active: str) -> dict[str, str]:
    """Return the zone by address, from the output of `firewall-cmd --get-active-zones`."""
    zones, zone = {}, ""
    for line in active.splitlines():
        key, _, value = line.strip().partition(":")
        if not line.startswith(" "):
            zone = line.split()[0] if line.split() else ""
        elif key == "sources":
            zones |= dict.fromkeys(value.split(), zone)
    return zones


# -- custom rules ----------------------------------------------------------------------------------


def shut_by_nftables(listed: dict[str, Any], peers: Sequence[str], card: str) -> list[str]:
    """Return a finding for each chain that blocks peers.

    `listed` is what `nft --json list ruleset` prints, parsed; the peers come in on `card`.
    """
    items = listed.get("nftables", [])
    rules = [item["rule"] for item in items if "rule" in item]
    sets: dict[str, dict[str, Any]] = {}
    for each in (item["set"] for item in items if "set" in item):
        sets.setdefault(each["table"], {})[f"@{each['name']}"] = each.get("elem", [])
    findings = []
    for chain in (item["chain"] for item in items if "chain" in item):
        if chain.get("hook") != "input" or chain.get("type") != "filter":
            continue
        if (chain["family"], chain["table"]) == TABLE:  # Hearth's own
            continue
        of_table = [
            rule["expr"]
            for rule in rules
            if (rule["family"], rule["table"]) == (chain["family"], chain["table"])
        ]
        reached = list(_reached(rules, _chain_of(chain, "name")))
        shut = []
        for peer in _of_family(chain["family"], peers):
            meets = partial(_meets, peer=peer, card=card, sets=sets.get(chain["table"], {}))
            drops = chain.get("policy") == "drop" or any(_drops(each, meets) for each in reached)
            if drops and not any(_accepts(each, meets) for each in of_table):
                shut.append(peer)
        if shut:
            where = f"{chain['family']} {chain['table']} {chain['name']}"
            kind = "ip6" if ":" in shut[0] else "ip"
            rule = f"{kind} saddr {{ {', '.join(shut)} }} accept"
            findings.append(
                f"this machine's nftables rules ({where}) turn the other nodes away, and Hearth "
                f"edits no rules that a person wrote. Now: nft insert rule {where} '{rule}'; for "
                "the next boot add it where the rules are kept, such as /etc/nftables.conf"
            )
    return findings


def shut_by_iptables(listed: str, peers: Sequence[str], card: str) -> list[str]:
    """Return a finding if the rules in `iptables -S` block peers that come in on `card`.

    IPv4 only.
    """
    rules = [shlex.split(line) for line in listed.splitlines()]
    inputs = [rule[2:] for rule in rules if rule[:2] == ["-A", "INPUT"]]
    shut = [
        peer
        for peer in _of_family("ip", peers)
        if not any(_iptables_accepts(rule[2:], peer, card) for rule in rules if rule[:1] == ["-A"])
        and (
            ["-P", "INPUT", "DROP"] in rules
            or any(_iptables_drops(rule, peer, card) for rule in inputs)
        )
    ]
    if not shut:
        return []
    return [
        "this machine's iptables rules turn the other nodes away, and Hearth edits no rules that a "
        f"person wrote. Now: iptables -I INPUT -s {','.join(shut)} -j ACCEPT; for the next boot "
        "add it where the rules are kept, such as /etc/iptables/rules.v4"
    ]


def _chain_of(item: dict[str, Any], name: str = "chain") -> tuple[str, str, str]:
    return item["family"], item["table"], item[name]


def _of_family(family: str, peers: Iterable[str]) -> list[str]:
    """Return the peers whose address family an nftables table covers."""
    versions = {"ip": {4}, "ip6": {6}, "inet": {4, 6}}.get(family, set())
    return [peer for peer in peers if ipaddress.ip_address(peer).version in versions]


def _reached(rules: list[dict[str, Any]], chain: tuple[str, str, str]) -> Iterator[list[Any]]:
    """Yield the expressions of a chain's rules, and of those in the chains that it jumps to."""
    for rule in rules:
        if _chain_of(rule) != chain:
            continue
        yield rule["expr"]
        for target in (part.get("jump") or part.get("goto") for part in rule["expr"]):
            if target:
                matches = [part for part in rule["expr"] if not {"jump", "goto"} & part.keys()]
                for expr in _reached(rules, (*chain[:2], target["target"])):
                    yield [*matches, *expr]


def _matches(expr: list[dict[str, Any]], *verdicts: str) -> list[dict[str, Any]] | None:
    """Return the conditions of a rule with one of these verdicts; None for any other rule.

    A rule with a condition that is not understood here counts as another one.
    """
    if not any({*verdicts} & part.keys() for part in expr) or any(
        {"limit", "xt", "vmap"} & part.keys() for part in expr
    ):
        return None
    return [part["match"] for part in expr if "match" in part]


def _drops(expr: list[dict[str, Any]], meets: Callable[[dict[str, Any]], bool]) -> bool:
    """Return whether a rule drops a peer's new TCP connections to a port that the kernel picked."""
    matches = _matches(expr, "drop", "reject")
    return matches is not None and all(map(meets, matches))


def _accepts(expr: list[dict[str, Any]], meets: Callable[[dict[str, Any]], bool]) -> bool:
    """Return whether a rule accepts everything from a peer."""
    matches = _matches(expr, "accept")
    return matches is not None and all(_is_of_sender(each) and meets(each) for each in matches)


def _is_of_sender(match: dict[str, Any]) -> bool:
    """Return whether a condition is about the card or the address that packets come from."""
    left = match["left"]
    by_card = left.get("meta", {}).get("key") in ("iifname", "iif")
    return match.get("op") == "==" and (by_card or left.get("payload", {}).get("field") == "saddr")


def _meets(match: dict[str, Any], *, peer: str, card: str, sets: dict[str, Any]) -> bool:
    """Return whether a condition certainly holds for a peer's new TCP connection."""
    left, right = match["left"], match["right"]
    if isinstance(right, str) and right.startswith("@"):
        right = {"set": sets.get(right, [])}
    key = left.get("meta", left.get("ct", {})).get("key")
    field = left.get("payload", {})
    masked = left.get("&")
    if key in ("iifname", "iif"):
        fits = card in _words(right)
    elif key == "state":
        fits = "new" in _words(right)
    elif key == "l4proto" or field.get("field") in ("protocol", "nexthdr"):
        fits = "tcp" in _words(right)
    elif field.get("field") == "saddr":
        fits = _holds(right, peer)
    elif field.get("protocol") in ("tcp", "th") and field.get("field") == "dport":
        fits = right < _OF_A_RUN.stop if match["op"].startswith(">") else _has_one(right)
    elif masked and masked[0].get("payload", {}).get("field") == "flags":
        fits = _words(masked[1]) & {"syn"} == _words(right)
    elif field.get("protocol") == "tcp" and field.get("field") == "flags":
        fits = "syn" in _words(right)
    else:
        return False
    return fits == (match.get("op") != "!=")


def _words(right: Any) -> set[str]:
    """Return all names in the right side of a condition, however they are nested."""
    if isinstance(right, dict):
        right = list(right.values())
    if isinstance(right, list):
        return set().union(*map(_words, right))
    return {right} if isinstance(right, str) else set()


def _has_one(right: Any) -> bool:
    """Return whether a port, range or set of nftables has a port that a run may listen on."""
    if isinstance(right, dict) and "set" in right:
        return any(map(_has_one, right["set"]))
    if isinstance(right, dict) and "range" in right:
        return _overlaps(*right["range"])
    return isinstance(right, int) and right in _OF_A_RUN


def _overlaps(low: int, high: int) -> bool:
    return low < _OF_A_RUN.stop and high >= _OF_A_RUN.start


def _holds(right: Any, peer: str) -> bool:
    """Return whether an address, prefix, range or set of nftables contains a peer."""
    address = ipaddress.ip_address(peer)
    if isinstance(right, dict):
        if "set" in right:
            return any(_holds(each, peer) for each in right["set"])
        if "elem" in right:
            return _holds(right["elem"]["val"], peer)
        if "prefix" in right:
            return _in_network(address, f"{right['prefix']['addr']}/{right['prefix']['len']}")
        if "range" in right:
            low, high = map(ipaddress.ip_address, right["range"])
            return low.version == address.version and int(low) <= int(address) <= int(high)
        return False
    return isinstance(right, str) and _in_network(address, right)


def _in_network(address: Any, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _iptables_accepts(rule: list[str], peer: str, card: str) -> bool:
    """Return whether a rule, without chain, accepts everything from a peer."""
    given = dict(zip(rule[::2], rule[1::2], strict=False))
    given.pop("--comment", None)
    if given.pop("-j", "") != "ACCEPT" or given.pop("-m", "comment") != "comment":
        return False
    source, interface = given.pop("-s", "0.0.0.0/0"), given.pop("-i", card)
    return not given and interface == card and _in_network(ipaddress.ip_address(peer), source)


def _iptables_drops(rule: list[str], peer: str, card: str) -> bool:
    """Return whether a rule, without chain, drops what `_drops` describes."""
    words = "\n".join(rule).replace("--tcp-flags\nFIN,SYN,RST,ACK\nSYN\n", "").split("\n")
    given = dict(zip(words[::2], words[1::2], strict=False))
    for word in ("-m", "--comment", "--reject-with"):
        given.pop(word, None)
    states = [given.pop(word, "NEW").split(",") for word in ("--ctstate", "--state")]
    ports = [given.pop(word, "0:65535").split(",") for word in ("--dport", "--dports")]
    return (
        given.pop("-j", "") in ("DROP", "REJECT")
        and given.pop("-p", "tcp") in ("tcp", "all")
        and given.pop("-i", card) == card
        and _in_network(ipaddress.ip_address(peer), given.pop("-s", "0.0.0.0/0"))
        and all("NEW" in each for each in states)
        and all(any(_spans(port) for port in each) for each in ports)
        and not given
    )


def _spans(ports: str) -> bool:
    low, _, high = ports.partition(":")
    return _overlaps(int(low), int(high or low))


# -- Hearth's own rules ---------------------------------------------------------------------------
#
# Gloo and NCCL listen on ports that the kernel picks, the rest of a run on ports above those. The
# rules drop new TCP connections to all of them from anybody but the nodes. They admit nothing that
# another firewall of the machine drops.

TABLE = ("inet", "hearth")

REMOVE = "add table inet hearth; delete table inet hearth"
"""Commands for nft that remove the rules, also if they are not loaded."""


def first_port(text: str) -> int:
    """Return the lowest port that the kernel picks, from the text of `ip_local_port_range`."""
    return int(text.split()[0])


def logins_ports(settings: str) -> list[int]:
    """Return the ports in the output of `sshd -T`, which stay open to everybody."""
    return sorted(map(int, re.findall(r"^port (\d+)", settings, re.M)))


def restriction_rules(peers: Sequence[str], first: int, logins: Sequence[int]) -> str:
    """Return a file for nft that drops new connections to the port `first` and those above.

    Those from `peers` and from this machine itself pass.
    """
    accepted = ['iifname "lo"']
    for kind, nodes in (
        ("ip", [peer for peer in peers if ":" not in peer]),
        ("ip6", [peer for peer in peers if ":" in peer]),
    ):
        accepted += [f"{kind} saddr {{ {', '.join(nodes)} }}"] if nodes else []
    accepted += [f"tcp dport {{ {', '.join(map(str, logins))} }}"] if logins else []
    rules = [f"{each} accept" for each in accepted]
    rules.append(f"tcp dport {first}-65535 tcp flags & (fin | syn | rst | ack) == syn drop")
    return "\n".join(
        [
            "# Only the nodes of the cluster reach the ports of a run (Hearth, firewall_restrict).",
            *REMOVE.split("; "),
            f"table {' '.join(TABLE)} {{",
            "\tchain input {",
            "\t\ttype filter hook input priority -10; policy accept;",
            *(f"\t\t{rule}" for rule in rules),
            "\t}",
            "}\n",
        ]
    )


def restriction_unit(rules: str) -> str:
    """Return the systemd unit that loads the file `rules` at boot.

    It comes after nftables.service, which empties the whole ruleset first.
    """
    return f"""\
[Unit]
Description=Only the nodes of the cluster reach the ports of a run
DefaultDependencies=no
After=nftables.service
Before=network-pre.target
Wants=network-pre.target

[Service]
Type=oneshot
ExecStart=/usr/sbin/nft -f {rules}
"""
