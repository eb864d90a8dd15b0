"""A mixture of data sets: each one loaded by itself, their rows under one numbering.

No row holds documents of two data sets. `hearth.plan.row_order` decides how often each row is seen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.base.text import counted
from hearth.data.load import (
    NOUNS,
    DataReport,
    HeldOutQuestion,
    TokenData,
    Tokenised,
    check_labels,
    load_data,
    pad_id_of,
)
from hearth.data.packing import parts_of_epoch
from hearth.data.rows import Batch, Document, PackedRows, joined


class MixedRows:
    """`Rows` of several data sets: those of the first part come first; see also `PreferenceRows`.

    Attributes:
        parts: the rows of each data set by name.
    """

    def __init__(self, parts: Mapping[str, PackedRows], pad_id: int) -> None:
        self.parts, self._pad_id = parts, pad_id
        self._sets = list(parts.values())
        self._ends = np.cumsum([len(rows) for rows in self._sets])

        def of_all(name: str) -> np.ndarray:
            return np.concatenate([getattr(rows, name) for rows in self._sets])

        self.tokens, self.label_tokens = of_all("tokens"), of_all("label_tokens")
        self.answers, self.liked = of_all("answers"), of_all("liked")
        self.liked_tokens, self.liked_lengths = of_all("liked_tokens"), of_all("liked_lengths")

    def __len__(self) -> int:
        return len(self.tokens)

    def _place(self, row: int) -> tuple[int, int]:
        """Return the number of the data set that `row` is of, and the row's number there."""
        index = int(np.searchsorted(self._ends, row, side="right"))
        return index, int(row - self._ends[index]) + len(self._sets[index])

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows numbered `indices`, padded; see `Rows.batch`."""
        places = map(self._place, indices)
        return joined([self._sets[at].batch([own]) for at, own in places], self._pad_id)

    def pieces_of(self, indices: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the numbers of the pieces in `indices`; see `PreferenceRows.pieces_of`."""
        firsts = np.cumsum([0, *(len(rows.liked) for rows in self._sets)])
        places = map(self._place, indices)
        found = (firsts[at] + self._sets[at].pieces_of([own]) for at, own in places)
        return np.concatenate([np.empty(0, np.int64), *found])

    def mismatched(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return rows with answers to other questions, each of the same data set."""
        places = map(self._place, indices)
        return joined([self._sets[at].mismatched([own]) for at, own in places], self._pad_id)

    def sources(self, row: int) -> list[str]:
        """Return the place of each document in `row`; see `Rows.sources`."""
        index, own = self._place(row)
        return self._sets[index].sources(own)

    def documents(self, count: int) -> list[Document]:
        """Return the first `count` examples, by turns of each part; see `Rows.documents`."""
        size = 2 if self._sets[0].paired else 1
        found = [rows.documents(count) for rows in self._sets]
        turns = range(0, max(map(len, found)), size)
        examples = [each[at : at + size] for at in turns for each in found if len(each) > at]
        return [document for example in examples[:count] for document in example]

    @property
    def largest_token(self) -> int:
        """The largest token id of all parts."""
        return max(rows.largest_token for rows in self._sets)


@dataclass(frozen=True)
class MixtureReport:
    """Statistics of a mixture; numbers are sums over its data sets.

    Attributes:
        sets: name, normalised share and passes an epoch of each data set.
        fingerprint: checksum of the data sets' fingerprints and shares.
        parts: the statistics of each data set.
        noun: what an example is; see `DataReport`.
    """

    sets: tuple[tuple[str, float, float], ...]
    examples: int
    held_out_examples: int
    rows: int
    held_out_rows: int
    tokens: int
    label_tokens: int
    fingerprint: str
    parts: tuple[DataReport, ...]
    noun: str = "example"

    def __str__(self) -> str:
        each = ", ".join(
            f"{share:.1%} {name} ({passes:.3g} pass{'es' * (passes != 1)} an epoch)"
            for name, share, passes in self.sets
        )
        count = counted(self.examples, self.noun)
        return (
            f"data: mixture of {each}: {count} and {self.held_out_examples} held out; {self.rows} "
            f"rows, {self.tokens} tokens, {self.label_tokens} learned"
        )


def load_mixture(
    shares: Mapping[str | Path | Tokenised, float], tokenizer: Any, **options: Any
) -> TokenData:
    """Load the data sets of a mixture: the share of each by its name, path or tokens.

    `options` are those of `load_data`.

    Raises `DataError` with the problems found in all of them.
    """
    say = options["say"]
    loaded: list[TokenData] = []
    findings: list[str] = []
    for dataset in shares:
        try:
            loaded.append(load_data(dataset, tokenizer, in_mixture=True, **options))
        except DataError as error:
            findings += error.findings
    if findings:
        raise DataError(*findings)
    names = [data.report.name for data in loaded]
    whole = sum(shares.values())
    fractions = [share / whole for share in shares.values()]
    parts = parts_of_epoch(
        fractions,
        [len(data.train) for data in loaded],
        [int(data.train.label_tokens.sum()) for data in loaded],
    )
    reports = [data.report for data in loaded]
    counts = (
        *("examples", "held_out_examples", "rows", "held_out_rows"),
        *("tokens", "label_tokens"),
    )
    text = " ".join(
        f"{report.fingerprint} {share!r}" for report, share in zip(reports, fractions, strict=True)
    )
    report = MixtureReport(
        sets=tuple(
            (name, share, part.per_epoch / part.rows)
            for name, share, part in zip(names, fractions, parts, strict=True)
        ),
        **{count: sum(getattr(each, count) for each in reports) for count in counts},
        fingerprint=hashlib.sha256(text.encode()).hexdigest(),
        parts=tuple(reports),
        noun=reports[0].noun,
    )
    say(str(report))

    def question() -> HeldOutQuestion | None:
        """Return the first held-out question of the first data set that has one."""
        return next(filter(None, (data.question() for data in loaded)), None)

    sides = [
        MixedRows(dict(zip(names, rows, strict=True)), pad_id_of(tokenizer))
        for rows in ([data.train for data in loaded], [data.held_out for data in loaded])
    ]
    if report.noun == NOUNS["kto"]:
        check_labels("the mixture", sides[0].liked)
    return TokenData(*sides, report, question, parts)
