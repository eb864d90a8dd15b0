"""All tokens of a data set as a few flat arrays: tokenised from records, and cached on disk.

An entry of the cache is a folder `<cache>/<key>/` with one file per array, and `entry.json` with
their checksums and the remarks. It is written under a temporary name and renamed; under a lock one
of several processes does the work while the others wait. An entry that does not match its checksums
is rebuilt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.base.files import replaced_folder, sha256_of
from hearth.base.locks import locked
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
    """Tokenise all examples of `records`; `stops` are the tokens that stop generation.

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

    If the file marks any document, its marks alone decide, and `fraction` is ignored. Otherwise a
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


# Increase it when the same file and tokenizer would give other tokens than before.
VERSION = 3


def cache_key(*parts: str) -> str:
    """Return the name of the cache entry for `parts`, a hash of them."""
    return hashlib.sha256(json.dumps([VERSION, *parts]).encode()).hexdigest()[:32]


def cached_documents(
    cache: Path, key: str, make: Callable[[], Documents], say: Callable[[str], None]
) -> Documents:
    """Return the documents of entry `key`, memory-mapped; call `make` if there is no valid entry.

    Raises `DataError` if `cache` cannot be written, and any error of `make`.
    """
    entry = cache / key
    with _disk_errors(cache):
        cache.mkdir(parents=True, exist_ok=True)
        (cache / f"{key}.lock").touch()
    waiting = "tokens: another process is tokenising this data set; waiting for it"
    with locked(cache / f"{key}.lock", say, waiting):
        if entry.exists():
            try:
                return _read(entry)
            except (OSError, ValueError, KeyError, TypeError) as error:
                say(f"tokens: the cached tokens are damaged ({error}); tokenising again")
        documents = make()
        with _disk_errors(cache):
            _write(documents, entry)
        return _read(entry)


@contextmanager
def _disk_errors(cache: Path) -> Iterator[None]:
    """Convert an `OSError` into a `DataError` for the user."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{cache}: the tokens cannot be stored here ({error.strerror or error}); free some "
            "space, or make this folder writable for you"
        ) from error


def _write(documents: Documents, entry: Path) -> None:
    """Write `documents` to `entry` atomically, in place of a damaged entry."""
    with replaced_folder(entry) as folder:
        checksums = {}
        for name, array in vars(documents).items():
            if isinstance(array, np.ndarray):
                np.save(folder / f"{name}.npy", array)
                checksums[name] = sha256_of(folder / f"{name}.npy")
        notes = [asdict(each) for each in documents.notes]
        entry = {"arrays": checksums, "notes": notes, "unused": documents.unused}
        (folder / "entry.json").write_text(json.dumps(entry), encoding="utf-8")


def _read(entry: Path) -> Documents:
    """Return the documents in `entry`. Raises `ValueError` or `OSError` if it is damaged."""
    known = json.loads((entry / "entry.json").read_text(encoding="utf-8"))
    checksums = known["arrays"]
    for name, sha256 in checksums.items():
        if sha256_of(entry / f"{name}.npy") != sha256:
            raise ValueError(f"{name}.npy has changed")
    return Documents(
        **{name: np.load(entry / f"{name}.npy", mmap_mode="r") for name in checksums},
        notes=tuple(Note(**each | {"lines": tuple(each["lines"])}) for each in known["notes"]),
        unused=tuple(known["unused"]),
    )
