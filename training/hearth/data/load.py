"""From the `dataset` setting to rows of tokens, for training and for evaluation."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.base.text import counted
from hearth.data.documents import (
    Documents,
    cache_key,
    cached_documents,
    example_groups,
    held_out_mask,
    tokenise,
)
from hearth.data.findings import Findings, Note, note
from hearth.data.formats import Records, open_records
from hearth.data.locate import LocalFile, LocalFiles, locate
from hearth.data.messages import Message
from hearth.data.packing import Part, pack
from hearth.data.preferences import PAIRED
from hearth.data.rows import Cut, PackedRows, Rows, cut_to_length, of_pairs
from hearth.data.template import ensure_chat_template, tokenizer_fingerprint

NOUNS = {"sft": "example", "dpo": "pair", "orpo": "pair", "kto": "answer"}
"""Name of an example by the objective."""
_MUCH = 1.5
"""From this ratio of the average lengths of good and bad answers on it is remarked on."""


@dataclass(frozen=True)
class DataReport:
    """Statistics of a loaded data set.

    Attributes:
        examples: training examples; a text that was cut counts once.
        tokens, label_tokens: in the training rows; label tokens carry loss.
        longest: tokens of the longest example, of a pair those of both answers.
        notes: remarks on examples: cut, left out, or shown in part only, each with the first lines.
        unused: columns that were not read.
        padding: fraction that holds no token where all rows are as long as the longest.
        fingerprint: checksum of all tokens, labels and rows; equal on nodes with the same data.
        noun: what an example is: an example, a pair, or an answer with a label.
        preferred: training examples that are answers to prefer.
    """

    name: str
    sha256: str
    examples: int
    held_out_examples: int
    rows: int
    held_out_rows: int
    tokens: int
    label_tokens: int
    longest: int
    notes: tuple[str, ...]
    unused: tuple[str, ...]
    padding: float
    fingerprint: str
    noun: str = "example"
    preferred: int = 0

    def __str__(self) -> str:
        unused = [f"not used: {', '.join(self.unused)}"] if self.unused else []
        count = counted(self.examples, self.noun)
        if self.noun == NOUNS["kto"]:
            count += f" ({self.preferred} preferred, {self.examples - self.preferred} to avoid)"
        return (
            f"data: {self.name}: {count} and {self.held_out_examples} held out; "
            f"{self.rows} rows, {self.tokens} tokens, {self.label_tokens} learned, "
            f"{self.padding:.1%} padding"
            + "".join(f"; {remark}" for remark in [*self.notes, *unused])
        )


@dataclass(frozen=True)
class HeldOutQuestion:
    """A held-out conversation up to its first answer, and the answer expected."""

    messages: tuple[Message, ...]
    expected: str

    @property
    def text(self) -> str:
        """The content of the last message, the question itself."""
        return self.messages[-1].content


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
    question: Callable[[], HeldOutQuestion | Beginning | None]
    parts: tuple[Part, ...] = ()
    revision: str | None = None
    sample: Rows | None = None


def _question(records: Records, held_out: frozenset[int], objective: str) -> HeldOutQuestion | None:
    """Return the first question of `records` on a `held_out` line; None if those hold only texts.

    A question is a user message followed by an assistant message; a greeting is not. With
    preferences the answer is one to prefer.
    """
    last = max(held_out, default=0)
    for line, (example, *_) in example_groups(
        records, Findings(records.name, records.files), objective
    ):
        if line > last:
            break
        if line not in held_out or example.liked is False:
            continue
        for at, (question, answer) in enumerate(pairwise(example.messages), start=1):
            counts = example.liked is None or answer.is_learned
            if (question.role, answer.role) == ("user", "assistant") and answer.content and counts:
                return HeldOutQuestion(example.messages[:at], answer.content)
    return None


@dataclass(frozen=True, eq=False)
class Tokenised:
    """The records of a data set, and their tokens; `objective` learns from them."""

    records: Records
    documents: Documents
    objective: str = "sft"

    def lengths(self, held_out: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of each chat and of each plain text that is trained on, int64.

        A pair is one chat of both answers. `held_out` is that of `load_data`.
        """
        documents = self.documents
        trained = ~held_out_mask(documents.hashes, documents.marks, held_out)
        lengths, plain = documents.lengths, documents.plain
        chats = lengths[trained & ~plain]
        return of_pairs(chats) if self.objective in PAIRED else chats, lengths[trained & plain]


def read_tokens(
    dataset: str | Path | LocalFile | LocalFiles,
    tokenizer: Any,
    cache: Path,
    columns: Mapping[str, str] | None = None,
    in_mixture: bool = False,
    stops: Sequence[int] = (),
    say: Callable[[str], None] = print,
    objective: str = "sft",
) -> Tokenised:
    """Tokenise `dataset`, or read its tokens from `cache`; see `load_data`."""
    located = dataset if isinstance(dataset, LocalFile | LocalFiles) else locate(dataset)
    records = open_records(located, columns, in_mixture)
    ensure_chat_template(tokenizer)

    def make() -> Documents:
        say(f"tokens: reading {records.name}")
        return tokenise(records, tokenizer, stops, objective=objective)

    named = [json.dumps([columns, in_mixture], sort_keys=True)] if columns else []
    if objective != "sft":
        named.append("pairs" if objective in PAIRED else "judged answers")
    fingerprint = tokenizer_fingerprint(tokenizer, stops)
    key = cache_key(records.sha256, records.form, fingerprint, *named)
    return Tokenised(records, cached_documents(cache, key, make, say), objective)


def load_data(
    dataset: str | Path | Tokenised,
    tokenizer: Any,
    *,
    sequence_length: int,
    packing: bool,
    held_out: float,
    seed: int,
    cache: Path,
    columns: Mapping[str, str] | None = None,
    in_mixture: bool = False,
    stops: Sequence[int] = (),
    say: Callable[[str], None] = print,
    objective: str = "sft",
) -> TokenData:
    """Load `dataset` as rows of at most `sequence_length` tokens.

    The tokenizer gets a plain chat template if it has none; its tokens are kept in `cache`. `seed`
    is that of the packing; `columns` and `in_mixture` are as in `open_records`. `stops` are the
    tokens that stop the model's generation. The data are pairs for the objectives `dpo` and `orpo`,
    judged answers for `kto` (see `preferences`); of tokens that were read it is known.

    Raises `DataError` with the problems found in the data, and `ModelError` if the tokenizer is
    unusable for training (see `ensure_chat_template`).
    """
    if not isinstance(dataset, Tokenised):
        dataset = read_tokens(dataset, tokenizer, cache, columns, in_mixture, stops, say, objective)
    data = token_data(
        dataset.records,
        dataset.documents,
        tokenizer,
        sequence_length=sequence_length,
        packing=packing,
        held_out=held_out,
        seed=seed,
        objective=dataset.objective,
    )
    if dataset.objective == "kto" and not in_mixture:
        check_labels(data.report.name, data.train.liked)
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
    objective: str = "sft",
) -> TokenData:
    """Return the rows of `documents`, which are the tokens of `records`.

    Raises `DataError` if nothing is left to train on.
    """
    name = records.name
    if not len(documents):
        notes = "".join(f"; {each.sentence(records.files)}" for each in documents.notes)
        blank = "every text or answer is blank"
        raise DataError(f"{name}: there is nothing to train on: {notes[2:] or blank}")
    chosen = held_out_mask(documents.hashes, documents.marks, held_out)
    if chosen.all():
        raise DataError(_nothing_left(name, documents, held_out, NOUNS[objective]))
    paired = objective in PAIRED
    form = (pad_id_of(tokenizer), sequence_length, packing, seed, records.files, paired)
    (train, train_cut), (kept, kept_cut) = (
        packed_rows(documents, side, name, *form) for side in (~chosen, chosen)
    )
    lengths, size = (of_pairs(documents.lengths), 2) if paired else (documents.lengths, 1)
    if not len(train):
        trained = lengths[~chosen[::size]]
        raise DataError(_all_too_long(name, trained, sequence_length, NOUNS[objective]))
    positions = len(train) * int(train.tokens.max())
    report = DataReport(
        name=name,
        sha256=records.sha256,
        examples=(int((~chosen).sum()) - len(train_cut.dropped)) // size,
        held_out_examples=(int(chosen.sum()) - len(kept_cut.dropped)) // size,
        rows=len(train),
        held_out_rows=len(kept),
        tokens=int(train.tokens.sum()),
        label_tokens=int(train.label_tokens.sum()),
        longest=int(lengths.max()),
        notes=tuple(
            each.sentence(records.files)
            for each in (
                *documents.notes,
                *_length_notes(documents, sequence_length, train_cut, kept_cut),
                *_notes_on_copies(documents, chosen),
            )
        )
        + (() if objective == "sft" else _length_note(train)),
        unused=documents.unused,
        padding=1 - int(train.tokens.sum()) / positions,
        fingerprint=hashlib.sha256(
            f"{train.fingerprint()} {kept.fingerprint()}".encode()
        ).hexdigest(),
        noun=NOUNS[objective],
        preferred=int(train.liked.sum()),
    )
    question = functools.partial(_question, records, kept.lines(), objective)
    return TokenData(train, kept, report, question)


def _length_notes(documents: Documents, longest: int, *cuts: Cut) -> list[Note]:
    """Return remarks on the texts cut, and the conversations left out, as longer than `longest`."""
    whole = "left out, as conversations are not cut"
    found = {
        f"longer than sequence_length {longest} and {what}": np.unique(
            documents.lines[np.concatenate([getattr(each, kind) for each in cuts])]
        ).tolist()
        for kind, what in (("cut", "cut into pieces"), ("dropped", whole))
    }
    return [note(text, lines) for text, lines in found.items() if lines]


def _notes_on_copies(documents: Documents, held_out: np.ndarray) -> list[Note]:
    """Return a remark on the training examples that are `held_out` (a mask), too, if there are."""
    copies = ~held_out & np.isin(documents.hashes, documents.hashes[held_out])
    text = "held out, too, so that the perplexity flatters"
    return [note(text, np.unique(documents.lines[copies]).tolist())] if copies.any() else []


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
    files: Sequence[str] = (),
    paired: bool = False,
) -> tuple[PackedRows, Cut]:
    """Return rows of the `chosen` documents (a mask), and the parts cut off.

    If they are `paired`, both answers of a pair are in one row, one behind the other.
    """
    cut = cut_to_length(documents, np.flatnonzero(chosen), sequence_length, paired)
    lengths = of_pairs(cut.pieces.lengths) if paired else cut.pieces.lengths
    rows = pack(lengths, sequence_length, seed) if packing else [[at] for at in range(len(lengths))]
    if paired:
        rows = [[piece for pair in row for piece in (2 * pair, 2 * pair + 1)] for row in rows]
    return PackedRows(documents, cut.pieces, rows, name, pad_id, files, paired, seed), cut


def check_labels(name: str, liked: np.ndarray) -> None:
    """Raise `DataError` if all answers of `name`, bool (answers,), are to prefer or to avoid."""
    if liked.any() != liked.all():
        return
    label, other, rest = "false", "prefer", ""
    if liked.any():
        label, other, rest = "true", "avoid", ", or learn these with objective=sft"
    raise DataError(
        f"{name}: all {len(liked)} answers to train on have the label {label}, and objective=kto "
        f"learns from the difference; add some to {other}{rest}"
    )


def _length_note(rows: PackedRows) -> tuple[str, ...]:
    """Return a remark if answers to prefer are much longer or shorter than those to avoid."""
    learned, liked = int(rows.label_tokens.sum()), int(rows.liked_tokens.sum())
    good = liked / max(1, int(rows.liked.sum()))
    bad = (learned - liked) / max(1, int((~rows.liked).sum()))
    if max(good, bad) < _MUCH * min(good, bad) or not min(good, bad):
        return ()
    return (
        f"length is learned, too: {good:.0f} tokens on average in answers to prefer, {bad:.0f} in "
        "those to avoid",
    )


def _nothing_left(name: str, documents: Documents, held_out: float, noun: str) -> str:
    if (documents.marks == 1).all():
        return f"{name}: every {noun} is marked held_out; mark some as train"
    count = len(np.unique(documents.lines))
    return (
        f"{name}: held_out {held_out:g} leaves nothing to train on: the file has "
        f"{counted(count, noun)}; add {noun}s, or set held_out to 0"
    )


def _all_too_long(name: str, lengths: np.ndarray, sequence_length: int, noun: str) -> str:
    return (
        f"{name}: all {len(lengths)} {noun}s are longer than sequence_length "
        f"{sequence_length} (the shortest has {lengths.min()} tokens, the longest "
        f"{lengths.max()}); raise sequence_length or shorten the {noun}s"
    )
