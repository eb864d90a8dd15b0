"""`hearth use`: remember the inventory to work with, or show which one is in use and why."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from hearth.base.errors import HearthError
from hearth.base.files import write_whole
from hearth_controller.base.paths import as_typed
from hearth_controller.cli.place import IN_USE, Place
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
    """Run `hearth use` and return the exit status."""
    if given.target is None:
        print(in_use(place, getattr(given, "inventory", None)))
        return 0
    try:
        inventory = find(place, given.target)
        remember(place, inventory)
    except HearthError as error:
        print("\n".join(error.findings), file=sys.stderr)
        return 2
    print(f"In use from now on: {as_typed(inventory)}")
    if overruling := os.environ.get("ANSIBLE_INVENTORY"):
        print(f"In this shell ANSIBLE_INVENTORY={overruling} still comes before it.")
    return 0


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
    given = Path(text).expanduser()
    places = [place.folder / given, place.repository / given]
    if len(given.parts) == 1:
        places.insert(0, place.repository / "inventory" / given)
    found = next((each for each in places if each.exists()), places[-1]).resolve()
    if findings := unreadable([str(found)]):
        raise HearthError(*findings)
    done = subprocess.run(
        ["ansible-inventory", "-i", str(found), "--graph", "cluster"],
        cwd=place.repository,
        env=place.environment(),
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
