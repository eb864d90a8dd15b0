"""nftables rules by which only the nodes reach the ports of a run. No I/O.

Gloo and NCCL listen on ports that the kernel picks, the rest of a run on ports above those. The
rules drop new TCP connections to all of them from anybody but the nodes. They admit nothing that
another firewall of the machine drops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

TABLE = ("inet", "hearth")

REMOVE = "add table inet hearth; delete table inet hearth"
"""Commands for nft that remove the rules, also if they are not loaded."""


def first_port(text: str) -> int:
    """Return the lowest port that the kernel picks, from the text of `ip_local_port_range`."""
    return int(text.split()[0])


def logins_ports(settings: str) -> list[int]:
    """Return the ports in the output of `sshd -T`, which stay open to everybody."""
    return sorted(map(int, re.findall(r"^port (\d+)", settings, re.M)))


def restriction(peers: Sequence[str], first: int, logins: Sequence[int]) -> str:
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


def unit(rules: str) -> str:
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
