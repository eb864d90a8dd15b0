"""`hearth use`: remember the inventory to work with, or show which one is in use and why."""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

from hearth.base.errors import HearthError
from hearth.base.files import write_whole
from hearth_controller.base.paths import as_typed
from hearth_controller.base.verdict import EXIT
from hearth_controller.cli.paths import Paths
from hearth_controller.cli.place import IN_USE, Place, environment
from hearth_controller.inventory.nodes import EXAMPLE, unreadable

DEFAULT = Path("inventory", "local")
"""The inventory of ansible.cfg."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the words of `hearth use`."""
    parser.description = (
        "Remember an inventory for all commands in this checkout; without FOLDER, show the one in "
        "use. -i and ANSIBLE_INVENTORY come before the remembered one."
    )
    parser.add_argument(
        "target", nargs="?", metavar="FOLDER", help="such as inventory/home; local: the default"
    )


def run(given: argparse.Namespace, place: Place) -> int:
    """Remember an inventory, or show the one in use; return the exit status."""
    if given.target is None:
        print(in_use(place, given.inventory))
        return EXIT["good"]
    inventory = find(place, given.target)
    remember(place, inventory)
    print(f"In use from now on: {as_typed(inventory)}")
    if overruling := os.environ.get("ANSIBLE_INVENTORY"):
        print(f"In this shell ANSIBLE_INVENTORY={overruling} still comes before it.")
    return EXIT["good"]


def in_use(place: Place, given: str | None) -> str:
    """Return which inventory is in use and why; `given` is the one after -i."""
    if given:
        why = "after -i"
    elif os.environ.get("ANSIBLE_INVENTORY"):
        why = "by ANSIBLE_INVENTORY"
    elif place.inventory:
        why = f"by `hearth use`, in {as_typed(place.repository / IN_USE)}"
    else:
        why = "the default of ansible.cfg: this computer alone"
    return f"{as_typed(place.inventory or place.repository / DEFAULT)} ({why})"


def find(place: Place, text: str) -> Path:
    """Return the inventory that a text names: a path, or a folder's name in inventory/.

    Raises `HearthError` if it is none.
    """
    named = Path("inventory", text)
    by_name = "/" not in text and (place.repository / named).exists()
    typed = str(named) if by_name else Paths(place.folder, place.repository).of_path(text)
    found = (place.repository / typed).resolve()
    if findings := unreadable([str(found)]):
        raise HearthError(*findings)
    done = subprocess.run(
        ["ansible-inventory", "-i", str(found), "--graph", "cluster"],
        cwd=place.repository,
        env=environment(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode or "|--" not in done.stdout:
        raise HearthError(
            f"{as_typed(found)} is no inventory: it has no hosts in the group 'cluster'; {EXAMPLE}"
        )
    return found


def remember(place: Place, inventory: Path) -> None:
    """Use an inventory from now on; the default needs no memory."""
    file = place.repository / IN_USE
    if inventory == place.repository / DEFAULT:
        file.unlink(missing_ok=True)
        return
    inside = inventory.is_relative_to(place.repository)
    write_whole(file, f"{inventory.relative_to(place.repository) if inside else inventory}\n")
