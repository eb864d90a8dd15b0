"""Names of machines in the user's SSH files: the hosts of ~/.ssh/config and of known_hosts."""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_KEYWORD = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
_PATTERN = set("*?!")
_MARKED = re.compile(r"\[(?P<host>.+)\]:(?P<port>\d+)")


@dataclass(frozen=True)
class KnownHosts:
    """The names in a known_hosts file, with ports; `hashed` counts the entries without a name."""

    names: tuple[tuple[str, int], ...]
    hashed: int


def config_hosts(file: Path, read: set[Path] | None = None) -> list[str]:
    """Return the names after `Host` in an ssh_config file and in those that it includes.

    Patterns are not names of a machine. A file that cannot be read has none, and none of `read` is
    read again.
    """
    read = {file} if read is None else read
    found: list[str] = []
    for keyword, words in _lines(file):
        if keyword == "host":
            found += [word for word in words if not _PATTERN & set(word)]
        elif keyword == "include":
            for word in words:
                # ssh looks for a relative path in the folder ~/.ssh, also from within a file below.
                pattern = os.path.join(Path.home() / ".ssh", os.path.expanduser(word))
                for path in map(Path, sorted(glob.glob(pattern))):
                    if path not in read:
                        read.add(path)
                        found += config_hosts(path, read)
    return list(dict.fromkeys(found))


def _lines(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield keyword and words of the lines of an ssh_config file."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        if found := _KEYWORD.fullmatch(line):
            try:
                words = shlex.split(found[2], comments=True)
            except ValueError:  # a quote without its end; ssh itself refuses the file
                words = found[2].split()
            yield found[1].lower(), words


def known_hosts(text: str) -> KnownHosts:
    """Return the names in the text of a known_hosts file; revoked keys and patterns have none."""
    names: list[tuple[str, int]] = []
    hashed = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3 or words[0].startswith(("#", "@")):
            continue
        if words[0].startswith("|"):
            hashed += 1
            continue
        for name in words[0].split(","):
            if not _PATTERN & set(name):
                marked = _MARKED.fullmatch(name)
                names.append((marked["host"], int(marked["port"])) if marked else (name, 0))
    return KnownHosts(tuple(dict.fromkeys(names)), hashed)
