"""Paths that a user types, which are relative to where they stand and not to the checkout."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_LISTS = {"dataset": r"\s*,\s*", "eval": r"\s*,\s*"}
"""Words that hold several names, and what stands between them."""

_NAMES = {"model", "dataset", "eval", "validation", "copy_to", "onto"}
"""Words that hold the name of a file or of something else, such as a model of the Hub."""

_LIKE_A_PATH = re.compile(r"\.{1,2}(/|$)|~")


@dataclass(frozen=True)
class Paths:
    """The folder where the user stands, and the checkout where playbooks run."""

    folder: Path
    repository: Path

    def of_word(self, name: str, value: str, is_path: bool = False) -> str:
        """Return the value of a word with every path in it for a play.

        `is_path` says that the value is always a path.
        """
        if is_path:
            return self.of_path(value)
        if name not in _NAMES or (name == "onto" and "/" not in value):  # the name of a run
            return value
        if name not in _LISTS:
            return self.of_name(value)
        parts = re.split(_LISTS[name], value)
        if len(parts) == 1:
            return self.of_name(value)
        return ",".join(self._of_share(part) for part in parts)

    def _of_share(self, part: str) -> str:
        """Return a part of a list; that of a mixture is `name=share`."""
        name, equals, share = part.rpartition("=")
        return f"{self.of_name(name)}={share}" if equals else self.of_name(part)

    def of_name(self, value: str) -> str:
        """Return a value that may be a path: one if it looks like it or there is such a file."""
        there = (self.folder / value).exists() if value else False
        globbed = "*" in value and any(self.folder.glob(value)) if value[:1] != "/" else False
        return self.of_path(value) if there or globbed or _LIKE_A_PATH.match(value) else value

    def of_path(self, value: str) -> str:
        """Return an absolute path, unless the value is relative to the checkout as it stands.

        A path that leads nowhere from here, but somewhere in the checkout, means that.
        """
        path = os.path.abspath(self.folder / os.path.expanduser(value))
        known_there = self.folder == self.repository or not os.path.exists(path)
        if known_there and not value.startswith("~") and (self.repository / value).exists():
            return value
        return path
