"""Rows of equal length over token shards, cut from the memory-mapped files."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hearth.data.rows import IGNORED, Batch, Document, joined
from hearth.data.shards.format import open_shard

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
