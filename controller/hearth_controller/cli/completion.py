"""Completion in the shell: verbs, flags, presets, runs of this computer, nodes of the inventory."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import argcomplete
import yaml

from hearth_controller.cli.parser import Parser, about, build, refuse
from hearth_controller.cli.paths import Paths
from hearth_controller.cli.place import REPOSITORY, inventory_of
from hearth_controller.cli.verbs import VERBS
from hearth_controller.cli.words import read_words

SHELLS = ("bash", "zsh", "fish")
_DEFAULT_INVENTORY = Path("inventory", "local")
_RUNS = ("run", "resume", "replay", "onto", "compare", "delete", "move")
"""Words that name a run."""


def script(arguments: Sequence[str]) -> str:
    """Return the script that a shell evaluates to complete `hearth`."""
    if len(arguments) != 1 or arguments[0] not in SHELLS:
        refuse("hearth", f"completion: name your shell, {', '.join(SHELLS)}")
    return argcomplete.shellcode(["hearth"], shell=arguments[0])


def complete() -> None:
    """Answer a shell that asks for completions, and exit; do nothing otherwise."""
    if "_ARGCOMPLETE" not in os.environ:
        return
    typed = next((word for word in os.environ.get("COMP_LINE", "").split() if word in VERBS), "")
    argcomplete.autocomplete(whole_parser(typed, REPOSITORY))


def whole_parser(typed: str, repository: Path) -> Parser:
    """Return a parser of all verbs, with the flags of the one that was `typed`."""
    table = read_words(repository)
    parser = Parser("hearth")
    parser.add_argument("-i", "--inventory")
    verbs = parser.add_subparsers()
    for name, verb in VERBS.items():
        parents = []
        if name == typed:
            parents = [build(verb, table, whole_help=True)]
            for action in parents[0]._actions:
                _attach(action, repository)
        verbs.add_parser(name, parents=parents, add_help=False, help=about(verb, table))
    shells = verbs.add_parser("completion", help="print the completion for a shell")
    shells.add_argument("shell", choices=SHELLS)
    return parser


def _attach(action: Any, repository: Path) -> None:
    """Attach the completer to a parser action."""

    def nodes(prefix: str, parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        paths = Paths(Path.cwd(), repository)
        inventory = inventory_of(getattr(parsed_args, "inventory", None), os.environ, paths)
        return next_in_list(prefix, nodes_of(Path(inventory or repository / _DEFAULT_INVENTORY)))

    if action.dest in _RUNS:
        action.completer = lambda **_: local_runs(repository / "runs")
    elif action.dest == "model":
        action.completer = lambda **_: presets(repository)
    elif action.dest == "nodes":
        action.completer = nodes
    elif words := getattr(action, "words", None):
        action.completer = lambda **_: words


def local_runs(folder: Path) -> list[str]:
    """Return the names of the runs of this computer, the newest first."""
    runs = [path for path in folder.glob("*") if (path / "run.yml").exists()]
    return [path.name for path in sorted(runs, key=lambda path: -path.stat().st_mtime)]


def presets(repository: Path) -> list[str]:
    """Return the names of the shipped presets."""
    return sorted(path.stem for path in (repository / "training" / "presets").glob("*.yml"))


def next_in_list(prefix: str, names: Sequence[str]) -> list[str]:
    """Return completions of a list that is being typed, each with one more of `names`."""
    before, comma, _ = prefix.rpartition(",")
    there = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name not in there]


def nodes_of(inventory: Path) -> list[str]:
    """Return the names of the hosts in the YAML files of an inventory, in their order.

    It reads the files alone: Ansible would take a second.
    """
    files = sorted(inventory.glob("*.y*ml")) if inventory.is_dir() else [inventory]
    names: dict[str, None] = {}
    for file in files:
        try:
            content = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError):
            continue
        names |= dict.fromkeys(_hosts(content))
    return list(names)


def _hosts(group: object) -> Iterator[str]:
    """Yield the hosts of a group of an inventory and of the groups in it."""
    for name, value in group.items() if isinstance(group, dict) else ():
        if name == "hosts" and isinstance(value, dict):
            yield from map(str, value)
        elif name != "vars":
            yield from _hosts(value)
