"""Checksum and range of tokens of each shard, computed once per file and kept.

Ten billion tokens are 20 GB: reading them takes as long as the disk does, up to minutes. So a shard
is read once on each machine, several at a time; a file whose size, time of change and inode are the
kept ones is not read again. A model's files are trusted in the same way (`hearth.model.folder`).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from hearth.base.errors import DataError
from hearth.base.files import read_object, write_whole
from hearth.base.locks import locked
from hearth.base.text import byte_count
from hearth.data.findings import SHOWN
from hearth.data.shards.format import open_shard

INDEX = "shards.json"
"""File in the folder of tokenised data that keeps the facts of shards by path."""

_THREADS = 4
_PART = 8 << 20
_EVERY = 10.0
"""Seconds between two lines of progress."""


@dataclass(frozen=True)
class ShardFacts:
    """Facts of one shard.

    Attributes:
        state: size in bytes, time of change in ns and inode of the file that was read.
        sha256: of the whole file.
        least: smallest token id.
        largest: largest token id.
    """

    state: tuple[int, int, int]
    sha256: str
    least: int
    largest: int


def examine(
    paths: Sequence[Path], folder: Path, say: Callable[[str], None]
) -> dict[Path, ShardFacts]:
    """Return the facts of all shards in `paths`, kept in `folder`.

    Raises `DataError` with the problems of all files; none is read whole then.
    """
    findings: list[str] = []
    for path in paths:
        try:
            open_shard(path)
        except DataError as error:
            findings += error.findings
    raise_shown(findings)
    return known(paths, folder, say)


def raise_shown(findings: Sequence[str]) -> None:
    """Raise `DataError` with the first findings and the number of the others, if there are any."""
    more = len(findings) - SHOWN
    if findings:
        rest = [f"and {more} more shard{'s' * (more > 1)} with problems"] if more > 0 else []
        raise DataError(*findings[:SHOWN], *rest)


def known(
    paths: Iterable[Path], folder: Path, say: Callable[[str], None]
) -> dict[Path, ShardFacts]:
    """Return the facts of those of `paths` that are valid shards, read where they are not kept.

    Raises `DataError` if `folder` cannot be written.
    """
    there = [path for path in paths if os.path.isfile(path)]
    found = _kept(there, folder)
    if len(found) == len(there):
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        waiting = "shards: another process is reading them; waiting for it"
        with locked(folder / f"{INDEX}.lock", say, waiting):
            found = _kept(there, folder)
            return found | _read([path for path in there if path not in found], folder, say)
    except OSError as error:
        raise DataError(
            f"{error.filename or folder}: checksums of shards cannot be read or kept "
            f"({error.strerror or error}); make it readable, and {folder} writable for you"
        ) from error


def _kept(paths: Iterable[Path], folder: Path) -> dict[Path, ShardFacts]:
    kept = read_object(folder / INDEX) or {}
    found = {}
    for path in paths:
        entry = kept.get(str(path))
        if entry and tuple(entry["state"]) == _state(path):
            found[path] = ShardFacts(**entry | {"state": _state(path)})
    return found


def _state(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ino


def _read(
    paths: Sequence[Path], folder: Path, say: Callable[[str], None]
) -> dict[Path, ShardFacts]:
    """Read shards and keep the facts of each as soon as it is read."""
    size, done, found = sum(path.stat().st_size for path in paths), 0, {}
    say(f"shards: reading {len(paths)} files ({byte_count(size)}) once, for their checksums")
    told = time.monotonic()
    kept = read_object(folder / INDEX) or {}
    kept = {name: entry for name, entry in kept.items() if os.path.exists(name)}
    with ThreadPoolExecutor(_THREADS) as threads:
        for path, facts in zip(paths, threads.map(_facts_of, paths), strict=True):
            done += path.stat().st_size
            if facts:
                found[path] = facts
                kept[str(path)] = asdict(facts)
                write_whole(folder / INDEX, json.dumps(kept))
            if time.monotonic() - told > _EVERY:
                told = time.monotonic()
                say(f"shards: {byte_count(done)} of {byte_count(size)} read")
    return found


def _facts_of(path: Path) -> ShardFacts | None:
    """Read one file; return None if it is no valid shard."""
    try:
        tokens = open_shard(path)
    except DataError:
        return None
    state, least, largest = _state(path), [], []
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(tokens.offset))
        while part := file.read(_PART):
            digest.update(part)
            ids = np.frombuffer(part, tokens.dtype)
            least.append(ids.min())
            largest.append(ids.max())
    return ShardFacts(state, digest.hexdigest(), int(min(least)), int(max(largest)))
