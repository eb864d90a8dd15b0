"""Rows of tokens, and micro-batches made from them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hearth.data.documents import Documents
from hearth.data.findings import place_of

IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """A micro-batch: int64 arrays of shape (rows, longest row of this batch).

    There is no attention mask: the boundaries of documents are in `position_ids`, which restart
    at 0 in each document and in the padding at a row's end.

    Attributes:
        input_ids: tokens, with padding at the end.
        labels: the token itself if it carries loss, else -100. Not shifted: the model predicts
            `labels[:, t + 1]` from position t. Each document's first label is -100, so that
            nothing is predicted across documents.
        position_ids: positions within the document.
        packed_seq_lengths: lengths of all documents, row after row, padding counted as a
            document; they add up to the size of the arrays, as Unsloth's fast path requires.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    position_ids: np.ndarray
    packed_seq_lengths: list[int]


@dataclass(frozen=True)
class Document:
    """One example, or the piece of a text, as it is trained.

    Attributes:
        source: its place, such as `file:line`.
        ids: int32 (tokens,).
        learned: bool (tokens,), whether a token carries loss; the first one never does.
    """

    source: str
    ids: np.ndarray
    learned: np.ndarray


class Rows(Protocol):
    """Rows of a data set; any of them can be read at any time.

    Attributes:
        tokens: int64 (rows,), tokens of each row.
        label_tokens: int64 (rows,), positions of each row that carry loss after the shift.
    """

    tokens: np.ndarray
    label_tokens: np.ndarray

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows numbered `indices`, in that order, padded to the longest of them.

        Without any, return a row of two tokens whose loss and gradient are zero: it is for a rank
        without rows when all ranks must compute together.
        """
        ...

    def sources(self, row: int) -> list[str]:
        """Return the place of each document in `row`, in order, such as `file:line`."""
        ...

    def documents(self, count: int) -> list[Document]:
        """Return the first `count` documents, in the order of the data."""
        ...


@dataclass(frozen=True)
class Pieces:
    """Slices of documents that fit into a row: int64 (pieces,) each.

    A chat example is one piece. A longer text is several, each beginning with the last token of
    the piece before, so that every token but the text's first is predicted once.
    """

    documents: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    targets: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each piece."""
        return self.stops - self.starts


@dataclass(frozen=True)
class Cut:
    """The pieces, and the numbers of the texts cut and the chat examples dropped as too long."""

    pieces: Pieces
    cut: np.ndarray
    dropped: np.ndarray


def cut_to_length(documents: Documents, chosen: np.ndarray, longest: int) -> Cut:
    """Return the pieces of the documents numbered `chosen`, none longer than `longest` tokens.

    Texts are cut into pieces. A chat example that is too long is dropped: without its beginning
    it lacks the question, without its end the end of the answer.
    """
    lengths = documents.lengths[chosen]
    fits = lengths <= longest
    long_texts = chosen[~fits & documents.plain[chosen]]
    stride = longest - 1
    firsts = [
        np.arange(0, documents.lengths[text] - 1, stride, dtype=np.int64) for text in long_texts
    ]
    of = np.concatenate([chosen[fits], np.repeat(long_texts, [len(first) for first in firsts])])
    within = np.concatenate([np.zeros(int(fits.sum()), np.int64), *firsts])
    order = np.lexsort((within, of))
    of, within = of[order].astype(np.int64), within[order]
    starts = documents.offsets[of] + within
    stops = np.minimum(starts + longest, documents.offsets[of + 1])
    targets = np.where(documents.plain[of], stops - starts - 1, documents.targets[of])
    dropped = chosen[~fits & ~documents.plain[chosen]]
    return Cut(Pieces(of, starts, stops, targets), cut=long_texts, dropped=dropped)


class PackedRows:
    """Packed `Rows` over a flat store of tokens, which may be memory-mapped.

    `rows` has the numbers of the `pieces` of the store `documents` that make up each row, and
    `name` is the data set's, `files` those of several files, for `sources`.
    """

    def __init__(
        self,
        documents: Documents,
        pieces: Pieces,
        rows: list[list[int]],
        name: str,
        pad_id: int,
        files: Sequence[str] = (),
    ) -> None:
        self._documents = documents
        self._pieces = pieces
        self._rows = rows
        self._name, self._files = name, files
        self._pad_id = pad_id
        lengths, targets = pieces.lengths, pieces.targets
        self.tokens = np.array([lengths[row].sum() for row in rows], dtype=np.int64)
        self.label_tokens = np.array([targets[row].sum() for row in rows], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows numbered `indices`, padded; see `Rows.batch`."""
        return joined([self._row(index) for index in indices], self._pad_id)

    def _row(self, index: int) -> Batch:
        """Return one row as long as it is."""
        shape = (1, int(self.tokens[index]))
        input_ids, position_ids = np.empty(shape, np.int64), np.empty(shape, np.int64)
        labels = np.full(shape, IGNORED, dtype=np.int64)
        packed, at = [], 0
        for piece in self._rows[index]:
            start, stop = self._pieces.starts[piece], self._pieces.stops[piece]
            ids, learned = self._documents.ids[start:stop], self._documents.learned[start:stop]
            end = at + len(ids)
            input_ids[0, at:end] = ids
            labels[0, at:end] = np.where(learned, ids, IGNORED)
            labels[0, at] = IGNORED
            position_ids[0, at:end] = np.arange(len(ids))
            packed.append(len(ids))
            at = end
        return Batch(input_ids, labels, position_ids, packed)

    @property
    def largest_token(self) -> int:
        """The largest token id in the store."""
        return int(self._documents.ids.max(initial=0))

    def sources(self, row: int) -> list[str]:
        """Return `file:line` of each document in `row`, in order (`file:row` for parquet)."""
        lines = self._documents.lines[self._pieces.documents[self._rows[row]]]
        return [place_of(line, self._name, self._files) for line in lines]

    def documents(self, count: int) -> list[Document]:
        """Return the first `count` documents; see `Rows.documents`."""
        pieces, found = self._pieces, list[Document]()
        for piece in np.argsort(pieces.documents, kind="stable")[:count]:
            start, stop = pieces.starts[piece], pieces.stops[piece]
            learned = np.array(self._documents.learned[start:stop])
            learned[0] = False
            line = self._documents.lines[pieces.documents[piece]]
            source = place_of(line, self._name, self._files)
            found.append(Document(source, np.array(self._documents.ids[start:stop]), learned))
        return found

    def lines(self) -> frozenset[int]:
        """Return the lines of all documents in these rows."""
        return frozenset(self._documents.lines[np.unique(self._pieces.documents)].tolist())

    def fingerprint(self) -> str:
        """Return a checksum of all tokens, labels and their positions in the rows."""
        digest = hashlib.sha256()
        for row in self._rows:
            digest.update(b"row")
            for piece in row:
                start, stop = self._pieces.starts[piece], self._pieces.stops[piece]
                digest.update(np.ascontiguousarray(self._documents.ids[start:stop]))
                digest.update(np.ascontiguousarray(self._documents.learned[start:stop]))
        return digest.hexdigest()


def joined(rows: Sequence[Batch], pad_id: int) -> Batch:
    """Return batches of one row each as one batch, padded with `pad_id` to the longest.

    Without any, return the row of two tokens that `Rows.batch` speaks of.
    """
    if not rows:
        ids = np.full((1, 2), pad_id, dtype=np.int64)
        return Batch(ids, np.full_like(ids, IGNORED), np.array([[0, 1]]), [2])
    shape = (len(rows), max(row.input_ids.shape[1] for row in rows))
    input_ids = np.full(shape, pad_id, dtype=np.int64)
    labels = np.full(shape, IGNORED, dtype=np.int64)
    position_ids = np.zeros(shape, dtype=np.int64)
    packed = []
    for line, row in enumerate(rows):
        end = row.input_ids.shape[1]
        input_ids[line, :end] = row.input_ids[0]
        labels[line, :end] = row.labels[0]
        position_ids[line, :end] = row.position_ids[0]
        packed += row.packed_seq_lengths
        if end < shape[1]:
            position_ids[line, end:] = np.arange(shape[1] - end)
            packed.append(shape[1] - end)
    return Batch(input_ids, labels, position_ids, packed)
