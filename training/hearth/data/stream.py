"""A data set of the Hub that is read while it is trained on, in windows of examples.

A window is tokenised, packed and shuffled by itself, so that all ranks, which read the same commit
of the data set, get the same rows without asking each other. Only the windows in use are held. The
held-out examples are a fraction of the first window; an example equal to one of them is not trained
on wherever it comes again. After its last example the data set begins again.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.base.hub import first_line
from hearth.data.documents import held_out_mask, tokenise
from hearth.data.findings import Findings
from hearth.data.formats import numbered
from hearth.data.hub_rows import open_stream
from hearth.data.load import TokenData, packed_rows, pad_id_of, token_data
from hearth.data.locate import locate
from hearth.data.records import DataRecord, Records, renamed, renaming
from hearth.data.rows import Batch, Document, PackedRows, joined
from hearth.data.template import ensure_chat_template

WINDOW = 2000
"""Examples of a window, which are shuffled among each other."""

WAITS = (5.0, 20.0, 60.0, 120.0)
"""Seconds between attempts to read on, besides those that the Hub's library makes by itself."""


class StreamReader:
    """Reads the windows of a stream one after another; `rows` is an iterable data set.

    Attributes:
        position: where the next window begins, as JSON: its number, the number of its first example
            in the pass over the data, and the state of the iterable data set.
    """

    def __init__(self, name: str, rows: Any, say: Callable[[str], None]) -> None:
        self._name, self._rows, self._say = name, rows, say
        self._beginning = copy.deepcopy(rows.state_dict())
        self.go_to({"window": 0, "example": 1, "state": self._beginning})

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Continue at a `position` of this or an earlier reader."""
        self.position = {key: position[key] for key in ("window", "example", "state")}
        self._iterator: Iterator[dict[str, Any]] | None = None

    def read(self) -> list[DataRecord]:
        """Return the records of the next window; the last one of a pass is shorter.

        Raises `DataError` if the Hub fails in every attempt, or has no rows.
        """
        window, example = self.position["window"], self.position["example"]
        rows = self._rows_of_window()
        if not rows and example == 1:
            raise DataError(f"{self._name}: its train split has no rows")
        if len(rows) < WINDOW:
            self.go_to({"window": window + 1, "example": 1, "state": self._beginning})
        else:
            state = copy.deepcopy(self._rows.state_dict())
            self.position = {"window": window + 1, "example": example + WINDOW, "state": state}
        return list(numbered(rows, example))

    def _rows_of_window(self) -> list[dict[str, Any]]:
        """Return the rows of the next window, after several attempts if need be."""
        for wait in (*WAITS, 0.0):
            try:
                if self._iterator is None:
                    self._rows.load_state_dict(copy.deepcopy(self.position["state"]))
                    self._iterator = iter(self._rows)
                return list(islice(self._iterator, WINDOW))
            except Exception as error:  # datasets passes on errors of many libraries
                self._iterator = None
                failure = (
                    f"{self._name}: the Hub fails behind example {self.position['example'] - 1} of "
                    f"the stream ({first_line(error)})"
                )
                if wait:
                    self._say(f"{failure}; trying again in {wait:g} s")
                    time.sleep(wait)
        raise DataError(f"{failure}, {len(WAITS) + 1} times; resume the run when it answers again")


@dataclass(frozen=True)
class _Window:
    """Rows of a window and their order; `position` is where it begins, with its first `row`."""

    rows: PackedRows
    order: np.ndarray
    position: Mapping[str, Any]

    @property
    def end(self) -> int:
        """The number of the first row behind it."""
        return self.position["row"] + len(self.order)


class StreamedRows:
    """`Rows` numbered from the beginning of a stream; missing rows are read on demand.

    `len` is the number of rows in the first window.

    Args:
        reader: stands behind the first window.
        first: rows of the first window, which begins at `beginning`.
        pack: makes rows of the records of a window.

    Attributes:
        tokens, label_tokens: as in `Rows`, to be indexed by arrays of row numbers only.
        largest_token: the largest token id of the first window.
    """

    def __init__(
        self,
        reader: StreamReader,
        first: PackedRows,
        beginning: Mapping[str, Any],
        pack: Callable[[list[DataRecord]], PackedRows],
        seed: int,
        pad_id: int,
    ) -> None:
        self._reader, self._first, self._pack = reader, first, pack
        self._seed, self._pad_id = seed, pad_id
        self._windows: list[_Window] = []
        self._end = 0
        self._add(first, beginning)
        self.tokens, self.label_tokens = _Column(self, "tokens"), _Column(self, "label_tokens")
        self.largest_token = first.largest_token

    def __len__(self) -> int:
        return len(self._first)

    def batch(self, indices: Sequence[int] | np.ndarray) -> Batch:
        """Return the rows numbered `indices`, padded; see `Rows.batch`."""
        places = [self.place(row) for row in indices]
        return joined([rows.batch([own]) for rows, own in places], self._pad_id)

    def sources(self, row: int) -> list[str]:
        """Return `data set:example` of each document in `row`; see `Rows.sources`."""
        rows, own = self.place(row)
        return rows.sources(own)

    def documents(self, count: int) -> list[Document]:
        """Return the first `count` documents of the first window; see `Rows.documents`."""
        return self._first.documents(count)

    def place(self, row: int) -> tuple[PackedRows, int]:
        """Return the rows of the window that `row` is in, and its number there."""
        while row >= self._end:
            beginning = self._reader.position
            self._add(self._pack(self._reader.read()), beginning)
        window = next(each for each in self._windows if row < each.end)
        return window.rows, int(window.order[row - window.position["row"]])

    def position(self, row: int) -> Mapping[str, Any]:
        """Return where the window of `row` begins, for `go_to`; `row` is held, or the next."""
        held = (window.position for window in self._windows if row < window.end)
        return next(held, {"row": self._end} | self._reader.position)

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Continue at a `position` of an earlier process."""
        self._reader.go_to(position)
        self._windows.clear()
        self._end = position["row"]

    def forget(self, row: int) -> None:
        """Drop the windows that end before `row`."""
        self._windows = [window for window in self._windows if row < window.end]

    def _add(self, rows: PackedRows, beginning: Mapping[str, Any]) -> None:
        """Hold the rows of the window that begins at `beginning`."""
        order = np.random.default_rng([self._seed, beginning["window"]]).permutation(len(rows))
        self._windows.append(_Window(rows, order, {"row": self._end} | beginning))
        self._end += len(rows)


class _Column:
    """One figure of every row of a stream."""

    def __init__(self, stream: StreamedRows, name: str) -> None:
        self._stream, self._name = stream, name

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        places = [self._stream.place(row) for row in rows]
        return np.array([getattr(its, self._name)[own] for its, own in places], dtype=np.int64)


def load_stream(
    dataset: str | Path,
    tokenizer: Any,
    *,
    revision: str | None,
    held_out: float,
    seed: int,
    columns: Mapping[str, str] | None = None,
    say: Callable[[str], None],
    stops: Sequence[int] = (),
    **form: Any,
) -> TokenData:
    """Return a data set of the Hub as a stream of its commit `revision`, or of its newest.

    `columns` are as in `open_records`; `stops` and, as `form`, `sequence_length` and `packing` are
    those of `load_data`.

    Raises `DataError` if the Hub does not answer, or with the problems found in the first window.
    """
    data = locate(dataset)
    rows, revision = open_stream(data, revision)
    ensure_chat_template(tokenizer)
    reader = StreamReader(data.name, rows, say)
    beginning = reader.position
    first = _records(data.name, revision, reader.read())
    if columns:
        first = replace(first, read=renaming(first.read, columns, required=True))
    documents = tokenise(first, tokenizer, stops)
    loaded = token_data(first, documents, tokenizer, held_out=held_out, seed=seed, **form)
    held = documents.hashes[held_out_mask(documents.hashes, documents.marks, held_out)]

    def pack(window: list[DataRecord]) -> PackedRows:
        """Return the training rows of a window; its invalid records are named and left out."""
        if columns:  # some may be missing in a window
            window = [replace(each, fields=renamed(each.fields, columns)) for each in window]
        findings = Findings(data.name)
        documents = tokenise(_records(data.name, revision, window), tokenizer, stops, findings)
        try:
            findings.raise_any()
        except DataError as error:
            for finding in error.findings:
                say(f"left out: {finding}")
        learned = ~np.isin(documents.hashes, held) & (documents.marks != 1)
        pad_id = pad_id_of(tokenizer)
        return packed_rows(documents, learned, data.name, pad_id, seed=seed, **form)[0]

    stream = StreamedRows(reader, loaded.train, beginning, pack, seed, pad_id_of(tokenizer))
    name = f"{data.name} as a stream at {revision[:12]}, its first {documents.offsets.size - 1}"
    # What comes behind the first window is known by the commit alone.
    fingerprint = hashlib.sha256(f"{loaded.report.fingerprint} {revision}".encode()).hexdigest()
    report = replace(loaded.report, name=name, fingerprint=fingerprint)
    say(str(report))
    return replace(loaded, train=stream, report=report, revision=revision, sample=loaded.train)


def _records(name: str, revision: str, window: list[DataRecord]) -> Records:
    """Return the records of one window as a data set of its own."""
    return Records(name, revision, lambda _: iter(window))
