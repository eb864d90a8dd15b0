"""Files of an inventory: write a new one in one step, keep the old one, read the example."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

from hearth.base.files import replaced_folder

EXAMPLE = Path("inventory", "homelab.example")
"""Folder of the checkout from which an inventory is made."""


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
