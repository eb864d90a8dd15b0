"""Check a node's copies of models and data files against their recorded checksums.

A model's checksums were recorded when it arrived (`hearth.json` in its folder); a file with
unchanged size and time is trusted and not read. A data file has its checksum in its name; rows of
the Hub have none, but are the same on all nodes.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
from typing import Any

from ansible.module_utils.hearth.base.places import HUB_ROWS, MANIFEST, STAGED_NAME
from ansible.module_utils.hearth_node.workspace.folder import checksum

MOST_BYTES = 2 << 30
"""Limit on the bytes to read; files beyond it are listed as unread."""


class Reader:
    """Computes checksums of files, up to a total number of bytes."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._left = most
        self.unread: list[str] = []

    def sha256(self, path: str) -> str | None:
        """Return the checksum of a file, or None if it exceeds the remaining bytes."""
        size = os.path.getsize(path)
        if size > self._left:
            self.unread.append(path)
            return None
        self._left -= size
        return checksum(path)


def models(folder: str, reader: Reader) -> dict[str, dict[str, Any]]:
    """Return the models of a cache by name: `fingerprint`, and the files that `changed`.

    Equal fingerprints mean that the files were equal on arrival.
    """
    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*", MANIFEST))):
        try:
            with open(path, encoding="utf-8") as file:
                files = json.load(file)["files"]
            sums = sorted((name, record["sha256"]) for name, record in files.items())
            changed = [
                name
                for name, record in files.items()
                if not _is_as_it_came(os.path.join(os.path.dirname(path), name), record, reader)
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            sums, changed = [], [MANIFEST]
        found[os.path.basename(os.path.dirname(path))] = {
            "fingerprint": hashlib.sha256(json.dumps(sums).encode()).hexdigest(),
            "changed": changed,
        }
    return found


def _is_as_it_came(path: str, record: dict[str, Any], reader: Reader) -> bool:
    try:
        status = os.stat(path)
        if (status.st_size, status.st_mtime_ns) == (record["size"], record["mtime_ns"]):
            return True
        return status.st_size == record["size"] and reader.sha256(path) in (None, record["sha256"])
    except OSError:
        return False


def data(workspace: str, reader: Reader) -> tuple[list[str], list[str]]:
    """Return the names of the runs' data files, and of those that changed since arrival."""
    folder = os.path.join(workspace, "data")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    staged = [
        name
        for name in names
        if STAGED_NAME.fullmatch(name) and os.path.isfile(os.path.join(folder, name))
    ]
    return staged, [name for name in staged if not _fits_its_name(folder, name, reader)]


def hub_data(workspace: str, reader: Reader) -> tuple[list[str], dict[str, str]]:
    """Return the names and checksums of the Hub data sets whose rows a node keeps.

    The node has no expected checksums; they are compared with those of the other nodes.
    """
    folder = os.path.join(workspace, "data", HUB_ROWS)
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "*.parquet")))
    sums = {}
    for path in paths:
        try:
            digest = reader.sha256(path)
        except OSError as error:
            digest = f"not readable: {error.strerror}"
        if digest is not None:
            sums[os.path.basename(path)] = digest
    return [os.path.basename(path) for path in paths], sums


def _fits_its_name(folder: str, name: str, reader: Reader) -> bool:
    try:
        digest = reader.sha256(os.path.join(folder, name))
    except OSError:
        return False
    return digest is None or digest.startswith(name[:12])
