"""What /etc/hosts of a node says of the nodes; pure text, and back again.

Two things are Hearth's in the file: a block with every node, and loopback lines that named a node.
Ubuntu's `127.0.1.1 tower` is such a line: with it a program that asks for its own host's address,
as Gloo does, gets one that no other node can reach. The line stays as a comment, and `restored`
makes it a line again.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

_BEGIN, _END = "# hearth: nodes begin\n", "# hearth: nodes end\n"
_WAS, _REST = "# hearth: was ", "  # hearth: rest\n"
# RFC 1123, in lower case. Linux itself would take nearly anything.
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_NO_NAMES = {"localhost", "localdomain", "ip6-localhost", "ip6-loopback"}


def host_name(node: str) -> str:
    """Return the host name of a node: its name in the inventory up to the first dot."""
    return node.lower().partition(".")[0]


def wrong_names(nodes: Iterable[str]) -> list[str]:
    """Return a finding for each node whose name in the inventory cannot become its host name."""
    findings, taken = [], {}
    for node in nodes:
        name = host_name(node)
        if is_address(node):
            findings.append(f"{node} is an address; give the node a name in the inventory")
        elif not all(map(_LABEL.fullmatch, node.lower().split("."))) or name in _NO_NAMES:
            findings.append(
                f"{node} cannot be a host name; use letters, digits and hyphens in the inventory"
            )
        elif name in taken:
            findings.append(
                f"{taken[name]} and {node} would both get the host name {name}; "
                "rename one in the inventory"
            )
        taken.setdefault(name, node)
    return findings


def rewritten(text: str, nodes: Mapping[str, str], own: str, also: str = "") -> str:
    """Return the file with all nodes in it, however it was left by an earlier call.

    Args:
        text: the file as it is.
        nodes: cluster address of each node, by its name in the inventory.
        own: the node that the file is on.
        also: host name that the node keeps beside that of the inventory.
    """
    aliases: dict[str, list[str]] = {}
    for node in nodes:
        names = [node.lower(), host_name(node), *([also] if node == own and also else [])]
        aliases[node] = list(dict.fromkeys(names))
    lines = []
    for line in restored(text).splitlines(keepends=True):
        address, names = _parts(line)
        mine = {name: node for name in names if (node := _owner(name, aliases, own))}
        if not mine or not _is_loopback(address):
            lines.append(line)
            continue
        lines.append(_WAS + line)
        if others := [name for name in names if name not in mine]:
            lines += ["\n"] * (not line.endswith("\n"))
            lines.append(f"{address} {' '.join(others)}{_REST}")
        for name, node in mine.items():
            # The full name comes first: that is what `hostname -f` answers.
            if name.lower() not in aliases[node]:
                aliases[node].insert(0, name)
    body = "".join(lines)
    if body and not body.endswith("\n"):
        body += "\n"
    each = "".join(f"{nodes[node]} {' '.join(names)}\n" for node, names in aliases.items())
    return f"{body}{_BEGIN}{each}{_END}"


def restored(text: str) -> str:
    """Return the file without anything of Hearth's; it may have got a newline at its end."""
    before, found, rest = text.partition(_BEGIN)
    if found:
        text = before + rest.partition(_END)[2]
    lines = []
    for line in text.splitlines(keepends=True):
        if not line.endswith(_REST):
            lines.append(line.removeprefix(_WAS))
    return "".join(lines)


def elsewhere(text: str, nodes: Mapping[str, str]) -> list[str]:
    """Return a finding for each line of somebody else's that gives a node another address."""
    findings = []
    addresses = {host_name(node): address for node, address in nodes.items()}
    for line in restored(text).splitlines():
        address, names = _parts(line)
        if not address or _is_loopback(address):
            continue
        for name in names:
            wanted = addresses.get(name.lower())
            if wanted and wanted != address:
                findings.append(
                    f"/etc/hosts says that {name} is {address}, and the inventory that it is "
                    f"{wanted}; remove {name} from the line `{line.strip()}`, or correct the "
                    "inventory"
                )
    return findings


def before_files(nsswitch: str) -> list[str]:
    """Return what /etc/nsswitch.conf asks for a host before it looks into /etc/hosts."""
    for line in nsswitch.splitlines():
        key, _, value = line.partition("#")[0].partition(":")
        if key.strip() == "hosts":
            sources = [word for word in value.split() if not word.startswith("[")]
            return sources[: sources.index("files")] if "files" in sources else sources
    return []


def is_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _parts(line: str) -> tuple[str, list[str]]:
    """Return address and names of a line; empty for one that has none."""
    words = line.partition("#")[0].split()
    return (words[0], words[1:]) if words and is_address(words[0]) else ("", [])


def _is_loopback(address: str) -> bool:
    return bool(address) and ipaddress.ip_address(address).is_loopback


def _owner(name: str, aliases: Mapping[str, list[str]], own: str) -> str | None:
    """Return the node that a name is of; longer forms such as tower.lan only count for our own."""
    for node, names in aliases.items():
        if name.lower() in names:
            return node
    short = name.lower().partition(".")[0]
    return own if own in aliases and short in aliases[own] and "." in name else None
