"""Rows of tokens, and micro-batches made from them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from hearth.data.documents import Documents
from hearth.data.findings import place_of
from hearth.data.packing import partners

IGNORED = -100
SIDES = ({1: "preferred", 0: "to avoid"}, {1: "chosen", 0: "rejected"})
"""Names of answers by `Documents.liked`: of judged ones, of pairs."""


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
        side: `chosen` or `rejected` of a pair, `preferred` or `to avoid` of judged answers.
    """

    source: str
    ids: np.ndarray
    learned: np.ndarray
    side: str = ""


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
        """Return the documents of the first `count` examples, in the order of the data."""
        ...


class PreferenceRows(Rows, Protocol):
    """Rows of preferences: their documents are whole pairs, or judged answers.

    In a row of pairs chosen and rejected answers take turns.

    Attributes:
        answers: int64 (rows,), documents of each row.
        liked_tokens: int64 (rows,), learned tokens of each row's preferred documents.
        liked_lengths: int64 (rows,), all tokens of these documents but the first of each.
        liked: bool (pieces,), whether a document is to prefer, by the number of its piece.
    """

    answers: np.ndarray
    liked_tokens: np.ndarray
    liked_lengths: np.ndarray
    liked: np.ndarray

    def pieces_of(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the numbers of the pieces in `batch(indices)`, in that order, int64."""
        ...

    def mismatched(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows of `batch(indices)` with the answer to another question in each document.

        Each document keeps its question, the tokens before the first learned one. `partners` has
        the document whose answer follows. No row is longer than in `batch`.
        """
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


def cut_to_length(
    documents: Documents, chosen: np.ndarray, longest: int, paired: bool = False
) -> Cut:
    """Return the pieces of the documents numbered `chosen`, none longer than `longest` tokens.

    Texts are cut into pieces. A chat example that is too long is dropped: without its beginning
    it lacks the question, without its end the end of the answer. Of pairs both answers together
    must fit.
    """
    lengths = documents.lengths[chosen]
    if paired:
        lengths = np.repeat(of_pairs(lengths), 2)
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


def of_pairs(counts: np.ndarray) -> np.ndarray:
    """Return the sum over both answers of each pair, from `counts` of all answers."""
    return counts.reshape(-1, 2).sum(axis=1)


class PackedRows:
    """Packed `Rows` over a flat store of tokens, which may be memory-mapped.

    `rows` has the numbers of the `pieces` of the store `documents` that make up each row, and
    `name` is the data set's, `files` those of several files, for `sources`. With preferences they
    are `PreferenceRows`, `paired` ones or judged answers; `seed` is that of `partners`.
    """

    def __init__(
        self,
        documents: Documents,
        pieces: Pieces,
        rows: list[list[int]],
        name: str,
        pad_id: int,
        files: Sequence[str] = (),
        paired: bool = False,
        seed: int = 0,
    ) -> None:
        self._documents, self._seed = documents, seed
        self.paired = paired
        self._pieces = pieces
        self._rows = rows
        self._name, self._files = name, files
        self._pad_id = pad_id
        self.liked = documents.liked[pieces.documents] == 1
        self.answers = np.array([len(row) for row in rows], dtype=np.int64)
        pieces_of_rows = np.fromiter(chain.from_iterable(rows), np.int64)
        firsts = np.cumsum(self.answers) - self.answers

        def of_rows(counts: np.ndarray) -> np.ndarray:
            """Return the sums over the pieces of each row."""
            return np.add.reduceat(counts.astype(np.int64)[pieces_of_rows], firsts)

        self.tokens, self.label_tokens = of_rows(pieces.lengths), of_rows(pieces.targets)
        self.liked_tokens = of_rows(pieces.targets * self.liked)
        self.liked_lengths = of_rows((pieces.lengths - 1) * self.liked)

    def __len__(self) -> int:
        return len(self._rows)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows numbered `indices`, padded; see `Rows.batch`."""
        return joined([self._row(index) for index in indices], self._pad_id)

    def _row(self, index: int) -> Batch:
        """Return one row as long as it is."""
        return row_of([self._piece(piece) for piece in self._rows[index]])

    def _piece(self, piece: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of a piece, and for each whether it carries loss."""
        own = slice(self._pieces.starts[piece], self._pieces.stops[piece])
        return self._documents.ids[own], self._documents.learned[own]

    def pieces_of(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the numbers of the pieces in `indices`; see `PreferenceRows.pieces_of`."""
        return np.array([piece for row in indices for piece in self._rows[row]], dtype=np.int64)

    def mismatched(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return rows with the answers to other questions; see `PreferenceRows.mismatched`."""
        rows = (row_of([self._mismatched(piece) for piece in self._rows[row]]) for row in indices)
        return joined([*rows], self._pad_id)

    def _mismatched(self, piece: int) -> tuple[np.ndarray, np.ndarray]:
        ids, learned = self._piece(piece)
        other_ids, other_learned = self._piece(int(self.partners[piece]))
        question, answer = int(np.argmax(learned)), int(np.argmax(other_learned))
        made = (
            np.concatenate([ids[:question], other_ids[answer:]]),
            np.concatenate([learned[:question], other_learned[answer:]]),
        )
        return made[0][: len(ids)], made[1][: len(ids)]

    @functools.cached_property
    def partners(self) -> np.ndarray:
        """The piece whose answer stands in the place of each one's, int64 (pieces,)."""
        pieces, learned = self._pieces, np.flatnonzero(self._documents.learned)
        answers = learned[np.searchsorted(learned, pieces.starts)]
        lines = self._documents.lines[pieces.documents]
        return partners(pieces.stops - answers, lines, self._seed)

    @property
    def largest_token(self) -> int:
        """The largest token id in the store."""
        return int(self._documents.ids.max(initial=0))

    def sources(self, row: int) -> list[str]:
        """Return `file:line` of each document in `row`, in order (`file:row` for parquet)."""
        lines = self._documents.lines[self._pieces.documents[self._rows[row]]]
        return [place_of(line, self._name, self._files) for line in lines]

    def documents(self, count: int) -> list[Document]:
        """Return the documents of the first `count` examples; see `Rows.documents`."""
        pieces, found = self._pieces, list[Document]()
        count *= 2 if self.paired else 1
        for piece in np.argsort(pieces.documents, kind="stable")[:count]:
            ids, learned = map(np.array, self._piece(piece))
            learned[0] = False
            number = pieces.documents[piece]
            source = place_of(self._documents.lines[number], self._name, self._files)
            side = SIDES[self.paired].get(int(self._documents.liked[number]), "")
            found.append(Document(source, ids, learned, side))
        return found

    def lines(self) -> frozenset[int]:
        """Return the lines of all documents in these rows."""
        return frozenset(self._documents.lines[np.unique(self._pieces.documents)].tolist())

    def fingerprint(self) -> str:
        """Return a checksum of all tokens, labels, preferences and their places in the rows."""
        digest = hashlib.sha256()
        for row in self._rows:
            digest.update(b"row")
            for piece in row:
                for array in self._piece(piece):
                    digest.update(np.ascontiguousarray(array))
                if (liked := int(self._documents.liked[self._pieces.documents[piece]])) >= 0:
                    digest.update(bytes([liked]))
        return digest.hexdigest()


def row_of(documents: Sequence[tuple[np.ndarray, np.ndarray]]) -> Batch:
    """Return a row of `documents`: the tokens of each, and whether they carry loss."""
    shape = (1, sum(len(ids) for ids, _ in documents))
    input_ids, position_ids = np.empty(shape, np.int64), np.empty(shape, np.int64)
    labels = np.full(shape, IGNORED, dtype=np.int64)
    packed, at = [], 0
    for ids, learned in documents:
        end = at + len(ids)
        input_ids[0, at:end] = ids
        labels[0, at:end] = np.where(learned, ids, IGNORED)
        labels[0, at] = IGNORED
        position_ids[0, at:end] = np.arange(len(ids))
        packed.append(len(ids))
        at = end
    return Batch(input_ids, labels, position_ids, packed)


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
