"""All tokens of a data set as a few flat arrays, and the tokenisation of records into them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from hearth.data.columns import to_example
from hearth.data.encode import encode
from hearth.data.findings import Findings, Note, Problem, note
from hearth.data.formats import Records
from hearth.data.messages import Example

_BATCH = 1000
BLANK = "left out as blank"


@dataclass(frozen=True)
class Documents:
    """The tokenised examples of a data set, in the order of the file.

    Attributes:
        ids: int32 (tokens,), all documents end to end.
        learned: bool (tokens,), whether a token carries loss.
        offsets: int64 (documents + 1,), start of each document in `ids`.
        targets: int64 (documents,), learned tokens of each, its first token not counted:
            no token precedes it to predict it from.
        lines: int64 (documents,), 1-based line or row in the file (see `place_of`).
        hashes: uint64 (documents,), hash of the content.
        marks: int8 (documents,), 1 held out, 0 train, -1 unmarked.
        plain: bool (documents,), whether it is a plain text, which may be cut into pieces.
        notes: remarks on the examples, such as those left out because no token carries loss.
        unused: columns that were not read, sorted.
    """

    ids: np.ndarray
    learned: np.ndarray
    offsets: np.ndarray
    targets: np.ndarray
    lines: np.ndarray
    hashes: np.ndarray
    marks: np.ndarray
    plain: np.ndarray
    notes: tuple[Note, ...] = ()
    unused: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each document, int64 (documents,)."""
        return np.diff(self.offsets)


def examples(records: Records, findings: Findings) -> Iterator[tuple[int, Example]]:
    """Yield line and example of each valid record; add the invalid ones to `findings`."""
    for record in records.read(findings):
        try:
            yield record.line, to_example(record.fields)
        except Problem as problem:
            findings.add(record.line, str(problem))


def tokenise(
    records: Records,
    tokenizer: Any,
    stops: Sequence[int] = (),
    found: Findings | None = None,
) -> Documents:
    """Tokenise all examples of `records`; `stops` are the tokens at which generation stops.

    Raises `DataError` with the problems found in the file. With `found` they are added to it
    instead, and the invalid records are left out.
    """
    findings = Findings(records.name, records.files) if found is None else found
    ids, learned, lines, hashes, marks, plain = [], [], [], [], [], []
    noted, unused = dict[str, list[int]](), set[str]()
    source = examples(records, findings)
    while batch := list(islice(source, _BATCH)):
        if findings and found is None:  # read the rest only to find further problems
            continue
        for (line, example), tokens in zip(
            batch, encode(tokenizer, [example for _, example in batch], stops), strict=True
        ):
            unused.update(example.unused)
            if isinstance(tokens, Problem):
                findings.add(line, str(tokens))
            elif example.empty or not tokens.learned[1:].any():
                noted.setdefault(BLANK, []).append(line)
            else:
                for each in tokens.notes:
                    noted.setdefault(each, []).append(line)
                ids.append(tokens.ids)
                learned.append(tokens.learned)
                lines.append(line)
                hashes.append(example.hash)
                marks.append(-1 if example.held_out is None else int(example.held_out))
                plain.append(not example.messages)
    if found is None:
        findings.raise_any()
    return Documents(
        ids=np.concatenate([np.empty(0, np.int32), *ids]),
        learned=np.concatenate([np.empty(0, bool), *learned]),
        offsets=np.cumsum([0, *map(len, ids)], dtype=np.int64),
        targets=np.array([int(flags[1:].sum()) for flags in learned], dtype=np.int64),
        lines=np.array(lines, dtype=np.int64),
        hashes=np.array(hashes, dtype=np.uint64),
        marks=np.array(marks, dtype=np.int8),
        plain=np.array(plain, dtype=bool),
        notes=tuple(note(text, lines) for text, lines in noted.items()),
        unused=tuple(sorted(unused)),
    )


def held_out_mask(hashes: np.ndarray, marks: np.ndarray, fraction: float) -> np.ndarray:
    """Return the mask of held-out documents, bool (documents,).

    If the file marks any document, its marks alone decide, whatever `fraction` is. Otherwise a
    document is held out if its content's hash falls below `fraction` of the hash's range: this
    does not depend on the order of the file, keeps a document on its side when others are added,
    and puts equal documents on the same side. At least one document is held out if `fraction` is
    above 0. `hashes` and `marks` are those of `Documents`.
    """
    if (marks >= 0).any():
        return marks == 1
    if fraction <= 0 or not len(hashes):
        return np.zeros(len(hashes), dtype=bool)
    chosen = drawn_by_hash(hashes, fraction)
    if not chosen.any():
        chosen = hashes == hashes.min()
    return chosen


def drawn_by_hash(hashes: np.ndarray, fraction: float) -> np.ndarray:
    """Return which of `hashes` fall below `fraction` of their range, bool (documents,)."""
    # Compare 53 bits, which a float holds exactly.
    return (hashes >> np.uint64(11)) < np.uint64(fraction * 2**53)
