"""Paths as people and shells want them."""

from __future__ import annotations

import os
import shlex


def as_typed(path: str | os.PathLike[str]) -> str:
    """Return a path of the controller as one would type it here: relative, if it is below.

    It is quoted where a shell would take it for something else, so that it can be pasted.
    """
    way = os.path.relpath(path)
    return shlex.quote(os.fspath(path) if way.startswith("..") else way)


def for_shell(path: str) -> str:
    """Return `path` quoted for the node's shell, which still resolves a leading `~/` by $HOME."""
    home, rest = ("~/", path[2:]) if path.startswith("~/") else ("", path)
    return home + shlex.quote(rest)
