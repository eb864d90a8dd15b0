"""Paths formatted for people and shells."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable

FOLDER = "HEARTH_FOLDER"
"""Environment variable with the folder where the user stands, if it is not the current one."""


def as_typed(path: str | os.PathLike[str]) -> str:
    """Return a controller path as its user would type it: relative if it is below their folder.

    It is quoted for a shell where necessary, so that it can be pasted.
    """
    way = os.path.relpath(path, os.environ.get(FOLDER))
    return shlex.quote(os.path.abspath(path) if way.startswith("..") else way)


def hearth_command(sources: Iterable[str], in_use: Iterable[str]) -> str:
    """Return the `hearth` command for the inventories `sources`.

    `in_use` are those that it takes by itself.
    """
    paths, own = ([_whole(path) for path in each] for each in (sources, in_use))
    named = [] if paths == own else [f"-i {as_typed(path)}" for path in paths]
    return " ".join(["hearth", *named])


def _whole(source: str) -> str:
    """Return the absolute path of an inventory, or a list of hosts as it is."""
    return source if "," in source else os.path.abspath(source)


def for_shell(path: str) -> str:
    """Quote `path` for the node's shell, which still expands a leading `~/`."""
    home, rest = ("~/", path[2:]) if path.startswith("~/") else ("", path)
    return home + shlex.quote(rest)
