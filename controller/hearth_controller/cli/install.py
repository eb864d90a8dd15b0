"""The installation of a checkout in its `.venv`, as scripts/setup recorded it."""

from __future__ import annotations

import hashlib
from pathlib import Path

_STAMPS = ("installed.sha256", "package.sha256")
"""Files of `.venv` with the checksums of what was installed from, in the format of sha256sum."""


def stale(repository: Path) -> str:
    """Return a line on what has changed since the packages were installed, '' if nothing has."""
    changed = [
        name for name, checksum in installed(repository) if checksum != _checksum(repository / name)
    ]
    if not changed:
        return ""
    names = " and ".join(changed)
    return f"hearth: .venv is older than {names}; run `hearth update` or ./scripts/setup"


def installed(repository: Path) -> list[tuple[str, str]]:
    """Return the files that were installed from, with their checksums; [] if none is recorded."""
    found = []
    for stamp in _STAMPS:
        path = repository / ".venv" / stamp
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            if not line.startswith("#"):
                checksum, name = line.split(maxsplit=1)
                found.append((name, checksum))
    return found


def kind_of(repository: Path) -> list[str]:
    """Return the flags of scripts/setup that install again what is installed."""
    stamp = repository / ".venv" / _STAMPS[0]
    first = stamp.read_text(encoding="utf-8").partition("\n")[0] if stamp.is_file() else ""
    flags = [f"--{side}" for side in ("control", "cpu") if f" for {side} in " in first]
    tests = any(name == "requirements/test.lock" for name, _ in installed(repository))
    return [*flags, "--tests"] if tests else flags


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
