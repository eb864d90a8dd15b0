"""From the `dataset` setting to rows of tokens, for training and for evaluation."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.data.cache import cache_key, cached_documents
from hearth.data.columns import Message
from hearth.data.documents import Documents, examples, held_out_mask, tokenise
from hearth.data.findings import Findings
from hearth.data.formats import Records, open_records
from hearth.data.locate import locate
from hearth.data.packing import pack
from hearth.data.parts import Part
from hearth.data.rows import Cut, PackedRows, Rows, cut_to_length
from hearth.data.template import ensure_chat_template, tokenizer_fingerprint


@dataclass(frozen=True)
class DataReport:
    """Statistics of a loaded data set.

    Attributes:
        examples: training examples; a text that was cut counts once.
        tokens, label_tokens: in the training rows; label tokens carry loss.
        cut: texts that were cut into pieces because they are longer than a row.
        dropped: chat examples left out because they are longer than a row.
        empty: examples left out because none of their tokens carries loss.
        padding: fraction that holds no token where all rows are as long as the longest.
        fingerprint: checksum of all tokens, labels and rows; equal on nodes with the same data.
    """

    name: str
    sha256: str
    examples: int
    held_out_examples: int
    rows: int
    held_out_rows: int
    tokens: int
    label_tokens: int
    cut: int
    dropped: int
    empty: int
    padding: float
    fingerprint: str

    def __str__(self) -> str:
        changed = {
            "texts cut into pieces": self.cut,
            "dropped as longer than sequence_length": self.dropped,
            "left out as blank": self.empty,
        }
        return (
            f"data: {self.name}: {self.examples} examples and {self.held_out_examples} held out; "
            f"{self.rows} rows, {self.tokens} tokens, {self.label_tokens} learned, "
            f"{self.padding:.1%} padding"
            + "".join(f"; {what}: {count}" for what, count in changed.items() if count)
        )


@dataclass(frozen=True)
class Question:
    """A held-out conversation up to its first answer, and the answer expected."""

    messages: tuple[Message, ...]
    expected: str

    @property
    def text(self) -> str:
        """The content of the last message, the question itself."""
        return self.messages[-1][1]


@dataclass(frozen=True)
class Beginning:
    """The first tokens of a held-out text, and those that follow them in it."""

    ids: list[int]
    following: list[int]


@dataclass(frozen=True)
class TokenData:
    """Training rows, held-out rows, and the report on the data set.

    `report` prints as one line and has `fingerprint` and `held_out_rows`; `question` returns the
    first held-out question of the data, the beginning of a text in its place, or None; `parts` are
    those of a mixture; `revision` is the commit of a stream, and `sample` are rows of it to measure
    speeds with.
    """

    train: Rows
    held_out: Rows
    report: Any
    question: Callable[[], Question | Beginning | None]
    parts: tuple[Part, ...] = ()
    revision: str | None = None
    sample: Rows | None = None


def _question(records: Records, held_out: frozenset[int]) -> Question | None:
    """Return the first question of `records` on a `held_out` line; None if those hold only texts.

    A question is a user message followed by an assistant message; a greeting is not.
    """
    last = max(held_out, default=0)
    for line, example in examples(records, Findings(records.name)):
        if line > last:
            break
        roles = [role for role, _ in example.messages]
        for answer, pair in enumerate(pairwise(roles), 1):
            if line in held_out and pair == ("user", "assistant"):
                return Question(example.messages[:answer], example.messages[answer][1])
    return None


@dataclass(frozen=True, eq=False)
class Tokenised:
    """The records of a data set, and their tokens."""

    records: Records
    documents: Documents

    def lengths(self, held_out: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of each chat and of each plain text that is trained on, int64.

        `held_out` is that of `load_data`.
        """
        documents = self.documents
        trained = ~held_out_mask(documents.hashes, documents.marks, held_out)
        lengths, plain = documents.lengths, documents.plain
        return lengths[trained & ~plain], lengths[trained & plain]


def read_tokens(
    dataset: str | Path, tokenizer: Any, cache: Path, say: Callable[[str], None] = print
) -> Tokenised:
    """Tokenise `dataset`, or read its tokens from `cache`; see `load_data`."""
    records = open_records(locate(dataset))
    ensure_chat_template(tokenizer)

    def make() -> Documents:
        say(f"tokens: reading {records.name}")
        return tokenise(records, tokenizer)

    # The key includes the suffix, since it decides the format in which the bytes are read.
    form = Path(records.name).suffix.lower()
    key = cache_key(records.sha256, form, tokenizer_fingerprint(tokenizer))
    return Tokenised(records, cached_documents(cache, key, make, say))


def load_data(
    dataset: str | Path | Tokenised,
    tokenizer: Any,
    *,
    sequence_length: int,
    packing: bool,
    held_out: float,
    seed: int,
    cache: Path,
    say: Callable[[str], None] = print,
) -> TokenData:
    """Load `dataset` as rows of at most `sequence_length` tokens.

    The tokenizer gets a plain chat template if it has none; its tokens are kept in `cache`. `seed`
    is that of the packing.

    Raises `DataError` with the problems found in the data, and `ModelError` if the tokenizer is
    unusable for training (see `ensure_chat_template`).
    """
    if not isinstance(dataset, Tokenised):
        dataset = read_tokens(dataset, tokenizer, cache, say)
    data = token_data(
        dataset.records,
        dataset.documents,
        tokenizer,
        sequence_length=sequence_length,
        packing=packing,
        held_out=held_out,
        seed=seed,
    )
    say(str(data.report))
    return data


def token_data(
    records: Records,
    documents: Documents,
    tokenizer: Any,
    *,
    sequence_length: int,
    packing: bool,
    held_out: float,
    seed: int,
) -> TokenData:
    """Return the rows of `documents`, which are the tokens of `records`.

    Raises `DataError` if nothing is left to train on.
    """
    name, empty = records.name, int(documents.empty[0])
    if not len(documents):
        raise DataError(f"{name}: there is nothing to train on: every text or answer is blank")
    chosen = held_out_mask(documents.hashes, documents.marks, held_out)
    if chosen.all():
        raise DataError(_nothing_left(name, documents, held_out))
    (train, train_cut), (kept, kept_cut) = (
        packed_rows(documents, side, name, pad_id_of(tokenizer), sequence_length, packing, seed)
        for side in (~chosen, chosen)
    )
    if not len(train):
        raise DataError(_all_too_long(name, documents.lengths[~chosen], sequence_length))
    positions = len(train) * int(train.tokens.max())
    report = DataReport(
        name=name,
        sha256=records.sha256,
        examples=int((~chosen).sum()) - train_cut.dropped,
        held_out_examples=int(chosen.sum()) - kept_cut.dropped,
        rows=len(train),
        held_out_rows=len(kept),
        tokens=int(train.tokens.sum()),
        label_tokens=int(train.label_tokens.sum()),
        cut=train_cut.cut + kept_cut.cut,
        dropped=train_cut.dropped + kept_cut.dropped,
        empty=empty,
        padding=1 - int(train.tokens.sum()) / positions,
        fingerprint=hashlib.sha256(
            f"{train.fingerprint()} {kept.fingerprint()}".encode()
        ).hexdigest(),
    )
    question = functools.partial(_question, records, kept.lines())
    return TokenData(train, kept, report, question)


def pad_id_of(tokenizer: Any) -> int:
    """Return the token that fills up rows."""
    return tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id


def packed_rows(
    documents: Documents,
    chosen: np.ndarray,
    name: str,
    pad_id: int,
    sequence_length: int,
    packing: bool,
    seed: int,
) -> tuple[PackedRows, Cut]:
    """Return rows of the `chosen` documents (a mask), and what was cut."""
    cut = cut_to_length(documents, np.flatnonzero(chosen), sequence_length)
    pieces = cut.pieces
    rows = [[piece] for piece in range(len(pieces.starts))]
    if packing:
        rows = pack(pieces.lengths, sequence_length, seed)
    return PackedRows(documents, pieces, rows, name, pad_id), cut


def _nothing_left(name: str, documents: Documents, held_out: float) -> str:
    if (documents.marks == 1).all():
        return f"{name}: every example is marked held_out; mark some as train"
    count = len(documents)
    return (
        f"{name}: held_out {held_out:g} leaves nothing to train on: the file has {count} "
        f"example{'s' * (count > 1)}; add examples, or set held_out to 0"
    )


def _all_too_long(name: str, lengths: np.ndarray, sequence_length: int) -> str:
    return (
        f"{name}: all {len(lengths)} examples are longer than sequence_length {sequence_length} "
        f"(the shortest has {lengths.min()} tokens, the longest {lengths.max()}); raise "
        "sequence_length or shorten the examples"
    )
