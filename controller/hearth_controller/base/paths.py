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


def playbook_command(sources: Iterable[str]) -> str:
    """Return the ansible-playbook command with these inventories."""
    return " ".join(["ansible-playbook", *(f"-i {as_typed(source)}" for source in sources)])


def for_shell(path: str) -> str:
    """Quote `path` for the node's shell, which still expands a leading `~/`."""
    home, rest = ("~/", path[2:]) if path.startswith("~/") else ("", path)
    return home + shlex.quote(rest)
