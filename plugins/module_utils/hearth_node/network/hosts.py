"""Write the nodes into the text of /etc/hosts, and remove them again. Pure: no I/O.

Hearth makes two changes: it adds a block with every node, and comments out loopback lines that name
a node. Ubuntu's `127.0.1.1 tower` is such a line: with it a program that resolves its host name, as
Gloo does, gets an address that no other node can reach. `restored` removes the block and uncomments
these lines.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

_BEGIN, _END = "# hearth: nodes begin\n", "# hearth: nodes end\n"
_WAS, _REST = "# hearth: was ", "  # hearth: rest\n"
# RFC 1123, in lower case. Linux itself accepts almost anything.
_LABEL = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)")
_NO_NAMES = {"localhost", "localdomain", "ip6-localhost", "ip6-loopback"}


def host_name(node: str) -> str:
    """Return the host name of a node: its name in the inventory up to the first dot."""
    return node.lower().partition(".")[0]


def wrong_names(nodes: Iterable[str]) -> list[str]:
    """Return a finding for each inventory name that is no valid host name."""
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
    """Return the file with all nodes in it, replacing the result of an earlier call.

    Args:
        text: the file as it is.
        nodes: cluster address of each node, by its name in the inventory.
        own: the node that the file is on.
        also: host name that the node keeps beside the inventory's.
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
            # The full name comes first, since `hostname -f` returns the first name.
            if name.lower() not in aliases[node]:
                aliases[node].insert(0, name)
    body = "".join(lines)
    if body and not body.endswith("\n"):
        body += "\n"
    each = "".join(f"{nodes[node]} {' '.join(names)}\n" for node, names in aliases.items())
    return f"{body}{_BEGIN}{each}{_END}"


def restored(text: str) -> str:
    """Return the file without Hearth's changes; a final newline may have been added."""
    before, found, rest = text.partition(_BEGIN)
    if found:
        text = before + rest.partition(_END)[2]
    lines = []
    for line in text.splitlines(keepends=True):
        if not line.endswith(_REST):
            lines.append(line.removeprefix(_WAS))
    return "".join(lines)


def elsewhere(text: str, nodes: Mapping[str, str]) -> list[str]:
    """Return a finding for each foreign line that gives a node another address."""
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
    """Return the host sources that /etc/nsswitch.conf lists before `files` (/etc/hosts)."""
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
    """Return address and names of a line, or empty values."""
    words = line.partition("#")[0].split()
    return (words[0], words[1:]) if words and is_address(words[0]) else ("", [])


def _is_loopback(address: str) -> bool:
    return bool(address) and ipaddress.ip_address(address).is_loopback


def _owner(name: str, aliases: Mapping[str, list[str]], own: str) -> str | None:
    """Return the node with this name; longer forms such as tower.lan match only our own node."""
    for node, names in aliases.items():
        if name.lower() in names:
            return node
    short = name.lower().partition(".")[0]
    return own if own in aliases and short in aliases[own] and "." in name else None
