"""The software that a rank runs on, which must be equal on all nodes. Imports no torch."""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hearth.base.files import sha256_of
from hearth.base.places import ADDED

LIBRARIES = ("torch", "transformers", "peft", "unsloth", "bitsandbytes")
"""Libraries that compute; a node need not have all of them."""


def software_here() -> dict[str, str]:
    """Return the versions of the installed `LIBRARIES`, and of Hearth the checksum of its code."""
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name).split("+")[0]  # torch adds "+cpu"
    return found | {"Hearth": code_checksum()[:12]}


def added_here() -> dict[str, str]:
    """Return the versions of the packages that Hearth added to this environment on request."""
    path = Path(sys.prefix) / ADDED
    found = {}
    for name in json.loads(path.read_text(encoding="utf-8")) if path.is_file() else ():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "missing"
    return found


def code_checksum() -> str:
    """Return a checksum of the training code and the data sets that come with it."""
    folder = Path(__file__).resolve().parents[2]
    files = (path for path in folder.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in sorted(path for path in files if "__pycache__" not in path.parts):
        digest.update(f"{path.relative_to(folder)} {sha256_of(path)}\n".encode())
    return digest.hexdigest()
