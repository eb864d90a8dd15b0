"""Token shards: their files, facts that are computed once per file, and rows cut from them.

A `.bin` file is as llm.c and modded-nanogpt write it. It begins with 256 int32, little-endian: a
magic number, a version, the number of tokens, and zeros. The tokens follow, as uint16 or uint32 by
magic number and version. A `.npy` file holds one row of integers.

Ten billion tokens are 20 GB: reading them takes as long as the disk does, up to minutes. So a shard
is read once on each machine, several at a time, for its checksum and range of tokens; a file whose
size, time of change and inode are the kept ones is not read again. A model's files are trusted in
the same way (`hearth.model.folder`).
"""

from __future__ import annotations

import functools
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
from hearth.data.rows import IGNORED, Batch, Document, joined

_HEADER = 256
_HEADER_BYTES = 4 * _HEADER
KINDS = {(20240520, 1): np.dtype("<u2"), (20240801, 7): np.dtype("<u4")}
"""Type of the tokens by magic number and version: of llm.c's GPT-2 and Llama 3 files."""


def open_shard(path: Path) -> np.memmap:
    """Return the tokens in `path`, one-dimensional and memory-mapped; only its header is read.

    Raises `DataError` if the file is not a token shard, or is not whole.
    """
    try:
        return _open_npy(path) if path.suffix.lower() == ".npy" else _open_bin(path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; bring it back") from None
    except OSError as error:
        raise DataError(f"{path}: this shard cannot be read ({error.strerror or error})") from error


def bin_header(count: int, dtype: np.dtype) -> np.ndarray:
    """Return the header of a `.bin` shard of `count` tokens of this type."""
    header = np.zeros(_HEADER, dtype="<i4")
    header[:2] = next(kind for kind, known in KINDS.items() if known == dtype)
    header[2] = count
    return header


def _open_bin(path: Path) -> np.memmap:
    size = path.stat().st_size
    header = np.fromfile(path, dtype="<i4", count=_HEADER).tolist()
    if len(header) < _HEADER:
        raise DataError(
            f"{path}: {size} bytes are less than the {_HEADER_BYTES} of a token shard's header; "
            "it was cut short, so fetch or make it again"
        )
    magic, version, count = header[:3]
    if (magic, version) not in KINDS:
        known = " or ".join(f"{a} version {b}" for a, b in KINDS)
        raise DataError(
            f"{path}: its header begins with {magic} version {version}, not with {known}, so it is "
            "no token shard of llm.c; save tokens without a header (nanoGPT's) with numpy.save "
            "as .npy"
        )
    dtype = KINDS[magic, version]
    if size != _HEADER_BYTES + count * dtype.itemsize or count < 0:
        within = "; it ends within a token" if (size - _HEADER_BYTES) % dtype.itemsize else ""
        raise DataError(
            f"{path}: its header counts {count} tokens of {dtype.itemsize} bytes, which with the "
            f"header take {_HEADER_BYTES + count * dtype.itemsize} bytes, and the file has {size}"
            f"{within}; fetch or make it again"
        )
    if not count:
        raise _no_tokens(path)
    return np.memmap(path, dtype, "r", _HEADER_BYTES, (count,))


def _open_npy(path: Path) -> np.memmap:
    try:
        tokens = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(
            f"{path}: this is not a whole .npy file ({reason}); write it again with numpy.save"
        ) from None
    if not isinstance(tokens, np.ndarray) or tokens.dtype.kind not in "iu" or tokens.ndim != 1:
        found = (
            f"{tokens.dtype} of shape {tokens.shape}"
            if isinstance(tokens, np.ndarray)
            else "no array"
        )
        raise DataError(
            f"{path}: token shards hold one row of integers, and this holds {found}; save the "
            "tokens end to end, such as array.astype('uint16').ravel()"
        )
    if not len(tokens):
        raise _no_tokens(path)
    return tokens


def _no_tokens(path: Path) -> DataError:
    return DataError(f"{path}: this shard holds no tokens; leave it out")


_OPEN = 256
"""Shards open at once: each costs a file descriptor, and a process often has only 1024."""


class ShardRows:
    """`Rows` of `sequence_length` tokens over the shards `paths`, at most `most` of them.

    Each row begins with the last token of the row before, so that every token of a shard but its
    first is predicted once. A row does not leave its shard: the tokens behind the last whole row
    are left out, as in llm.c. Documents are not isolated from each other.

    Attributes:
        left_out: number of tokens behind the last rows of the shards.
    """

    def __init__(
        self, paths: Sequence[Path], sequence_length: int, most: int | None = None
    ) -> None:
        self._paths, self._length = list(paths), sequence_length
        self._open = functools.lru_cache(_OPEN)(open_shard)
        counts = np.array([len(self._open(path)) for path in paths], dtype=np.int64)
        stride = sequence_length - 1
        whole = np.maximum(counts - 1, 0) // stride
        # Number of rows before each shard, and of all.
        self._before = np.concatenate([[0], np.cumsum(whole)])
        self._count = int(self._before[-1] if most is None else min(most, self._before[-1]))
        self.left_out = int((counts - np.where(whole > 0, whole * stride + 1, 0)).sum())
        # All rows are equal: these arrays have one element in memory.
        self.tokens = np.broadcast_to(np.int64(sequence_length), self._count)
        self.label_tokens = np.broadcast_to(np.int64(stride), self._count)

    def __len__(self) -> int:
        return self._count

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows numbered `indices`; see `Rows.batch`."""
        if not len(indices):
            return joined([], pad_id=0)
        ids = np.empty((len(indices), self._length), dtype=np.int64)
        for line, index in enumerate(indices):
            path, start = self._place(int(index))
            ids[line] = self._open(path)[start : start + self._length]
        labels = ids.copy()
        labels[:, 0] = IGNORED
        positions = np.tile(np.arange(self._length), (len(ids), 1))
        return Batch(ids, labels, positions, [self._length] * len(ids))

    def sources(self, row: int) -> list[str]:
        """Return `file:token` of the first token of `row`, counted from 0."""
        path, start = self._place(row)
        return [f"{path}:{start}"]

    def documents(self, count: int) -> list[Document]:
        """Return the first `count` rows: the borders of documents in shards are not known."""
        found = []
        for row in range(min(count, self._count)):
            path, start = self._place(row)
            ids = np.array(self._open(path)[start : start + self._length], dtype=np.int32)
            learned = np.arange(self._length) > 0
            found.append(Document(f"{path}:{start}", ids, learned))
        return found

    def _place(self, row: int) -> tuple[Path, int]:
        """Return the shard of a row and the position of its first token."""
        shard = int(np.searchsorted(self._before, row, side="right")) - 1
        return self._paths[shard], int(row - self._before[shard]) * (self._length - 1)


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
    reported = time.monotonic()
    kept = read_object(folder / INDEX) or {}
    kept = {name: entry for name, entry in kept.items() if os.path.exists(name)}
    with ThreadPoolExecutor(_THREADS) as threads:
        for path, facts in zip(paths, threads.map(_facts_of, paths), strict=True):
            done += path.stat().st_size
            if facts:
                found[path] = facts
                kept[str(path)] = asdict(facts)
                write_whole(folder / INDEX, json.dumps(kept))
            if time.monotonic() - reported > _EVERY:
                reported = time.monotonic()
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
