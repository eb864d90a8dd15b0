"""Write a draft as the files of an inventory, made from inventory/homelab.example.

The example is the only source of comments and options: a line that shows an option, commented or
not, gets the value of the draft.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from hearth.base.files import replaced_folder
from hearth_controller.discover.choice import nic_text
from hearth_controller.discover.draft import Draft, NodeDraft

HOSTS, MACHINES, KEYS = "hosts.yml", "group_vars/cluster/machines.yml", "known_hosts"
_OPTION = re.compile(r"(?P<indent> *)(?:# )?(?P<name>[a-z_]+): (?P<value>\S.*)")
_HOST = re.compile(r"    [\w.-]+:")
_PLAIN = re.compile(r"[A-Za-z/~][\w./~-]*|\d+(\.\d+){3}")
_MEANS_MORE = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}


def rendered(draft: Draft, example: Mapping[str, str], head: str) -> dict[str, str]:
    """Return the inventory's files by path, from those of the example; `head` is its first line.

    The host keys of this search are pinned, so that provisioning meets the same machines.
    """
    files = dict(example)
    files[HOSTS] = _hosts(draft.nodes, example[HOSTS], head)
    files[MACHINES] = "\n".join(filled(example[MACHINES].splitlines(), draft.variables)) + "\n"
    keys = [(node.name, key) for node in draft.nodes for key in node.machine.keys]
    pins = "".join(f"{name} {key.type} {key.text}\n" for name, key in keys)
    return files | ({KEYS: pins} if pins else {})


def filled(lines: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """Return lines of YAML with each option of `values` set, whether it was commented or not.

    Raises `KeyError` for an option that no line shows.
    """
    missing, found = dict(values), []
    for line in lines:
        option = _OPTION.fullmatch(line)
        if option and option["name"] in missing:
            name = option["name"]
            line = f"{option['indent']}{name}: {_yaml(missing.pop(name))}"
        found.append(line)
    if missing:
        raise KeyError(*missing)
    return found


def _hosts(nodes: Sequence[NodeDraft], example: str, head: str) -> str:
    """Return the text of hosts.yml: the example's first host explains the options of all."""
    lines = example.splitlines()
    starts = [number for number, line in enumerate(lines) if _HOST.fullmatch(line)]
    start = lines.index("---")
    # Only the last paragraph of the example's head is true of any inventory.
    about = "\n".join(lines[:start]).rpartition("\n#\n")[2].splitlines()
    block = lines[starts[0] + 1 : starts[1]]
    written = [f"# {head}", "#", *about, *lines[start : starts[0]]]
    for node in nodes:
        values = filled(block, node.variables)
        if node is not nodes[0]:
            values = [line for line in values if not line.strip().startswith("#")]
        written += [f"    {_yaml(node.name)}:", f"      # {described(node)}", *values]
    return "\n".join(written) + "\n"


def described(node: NodeDraft) -> str:
    """Return the NIC, GPU and system of a node in one line."""
    facts = node.machine.facts
    if facts is None:
        return "Not inspected."
    nic = nic_text(node.machine, node.choice)
    parts = (nic, facts.gpu or "no NVIDIA GPU", f"{facts.system} ({facts.arch})")
    return "Found: " + ", ".join(filter(None, parts))


def _yaml(value: Any) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _MEANS_MORE:
        return value
    return json.dumps(value, ensure_ascii=False)


EXAMPLE = Path("inventory", "homelab.example")
"""Folder of the checkout that holds the example of an inventory."""


def example_files(repository: Path) -> dict[str, str]:
    """Return the files of the example by their path in its folder."""
    folder = repository / EXAMPLE
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.yml"))
    }


def write(folder: Path, files: Mapping[str, str]) -> Path | None:
    """Write an inventory in one step, and return where the one before it is kept, if there was one.

    Raises `OSError` if it cannot be written; the one before is then in its place.
    """
    fresh = folder.with_name(f".{folder.name}.new")
    with replaced_folder(fresh) as unfinished:
        for name, text in files.items():
            path = unfinished / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    kept = None
    if folder.exists():
        names = (folder.with_name(f"{folder.name}.{number}") for number in count(1))
        kept = folder.rename(next(each for each in names if not each.exists()))
    fresh.rename(folder)
    return kept
