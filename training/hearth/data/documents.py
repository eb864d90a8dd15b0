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
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from hearth.base.errors import DataError
from hearth.base.files import replaced_folder, sha256_of
from hearth.base.locks import locked
from hearth.data.columns import to_example
from hearth.data.encode import Encoded, encode
from hearth.data.findings import Findings, Note, Problem, note
from hearth.data.formats import Records
from hearth.data.messages import Example, hash_of_text
from hearth.data.pairs import EQUAL, check_head, remark_on
from hearth.data.preferences import to_preferences

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
        liked: int8 (documents,), 1 an answer to prefer, 0 one to avoid, -1 in data that are no
            preferences. In data of pairs documents 2k and 2k + 1 are the chosen and the rejected
            answer of one record.
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
    liked: np.ndarray = field(default_factory=lambda: np.empty(0, np.int8))

    def __post_init__(self) -> None:
        if not len(self.liked):  # as in entries of the cache from before there were preferences
            object.__setattr__(self, "liked", np.full(len(self.lines), -1, np.int8))

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each document, int64 (documents,)."""
        return np.diff(self.offsets)


def examples(records: Records, findings: Findings) -> Iterator[tuple[int, Example]]:
    """Yield line and example of each valid record; add the invalid ones to `findings`."""
    for line, (example,) in example_groups(records, findings, "sft"):
        yield line, example


def example_groups(
    records: Records, findings: Findings, objective: str
) -> Iterator[tuple[int, tuple[Example, ...]]]:
    """Yield line and examples of each valid record; add the invalid ones to `findings`.

    The objective `sft` learns one example of a record, others see `preferences`.
    """
    for record in records.read(findings):
        try:
            if objective == "sft":
                yield record.line, (to_example(record.fields),)
            else:
                yield record.line, to_preferences(record.fields, objective)
        except Problem as problem:
            findings.add(record.line, str(problem))


def tokenise(
    records: Records,
    tokenizer: Any,
    stops: Sequence[int] = (),
    found: Findings | None = None,
    objective: str = "sft",
) -> Documents:
    """Tokenise all examples of `records`; `stops` are the tokens that stop generation.

    Raises `DataError` with the problems found in the file. With `found` they are added to it
    instead, and the invalid records are left out.
    """
    findings = Findings(records.name, records.files) if found is None else found
    made = _Made()
    source = example_groups(records, findings, objective)
    while batch := list(islice(source, _BATCH)):
        if findings and found is None:  # read the rest only to find further problems
            continue
        tokens = iter(encode(tokenizer, [each for _, group in batch for each in group], stops))
        for line, group in batch:
            try:
                made.add(line, group, [next(tokens) for _ in group])
            except Problem as problem:
                findings.add(line, str(problem))
    if found is None:
        findings.raise_any()
    return made.documents()


class _Made:
    """The documents made so far."""

    def __init__(self) -> None:
        self._tokens: list[Encoded] = []
        self._examples: list[tuple[int, int, Example]] = []
        self._noted: dict[str, list[int]] = {}
        self._unused: set[str] = set()

    def add(
        self, line: int, group: Sequence[Example], encoded: Sequence[Encoded | Problem]
    ) -> None:
        """Add the examples of the record in `line`: one, or the two answers of a pair.

        Raises `Problem` if they cannot be trained on.
        """
        self._unused.update(*(example.unused for example in group))
        tokens = list[Encoded]()
        for each in encoded:
            if isinstance(each, Problem):
                raise each
            tokens.append(each)
        blank = any(
            example.empty or not each.learned[1:].any()
            for example, each in zip(group, tokens, strict=True)
        )
        remarks = {BLANK} if blank else {text for each in tokens for text in each.notes}
        if len(group) == 2 and not blank:
            check_head(*tokens)
            remarks |= remark_on(*group, *tokens)
        for text in sorted(remarks):
            self._noted.setdefault(text, []).append(line)
        if not remarks & {BLANK, EQUAL}:
            self._tokens += tokens
            self._examples += [(line, hash_of(group), example) for example in group]

    def documents(self) -> Documents:
        """Return all documents."""
        lines, hashes, examples = zip(*self._examples, strict=True) if self._examples else [()] * 3
        return Documents(
            ids=np.concatenate([np.empty(0, np.int32), *(each.ids for each in self._tokens)]),
            learned=np.concatenate([np.empty(0, bool), *(each.learned for each in self._tokens)]),
            offsets=np.cumsum([0, *(len(each.ids) for each in self._tokens)], dtype=np.int64),
            targets=np.array([each.learned[1:].sum() for each in self._tokens], dtype=np.int64),
            lines=np.array(lines, dtype=np.int64),
            hashes=np.array(hashes, dtype=np.uint64),
            marks=_flags([example.held_out for example in examples]),
            plain=np.array([not example.messages for example in examples], dtype=bool),
            liked=_flags([example.liked for example in examples]),
            notes=tuple(note(text, lines) for text, lines in self._noted.items()),
            unused=tuple(sorted(self._unused)),
        )


def _flags(values: Sequence[bool | None]) -> np.ndarray:
    """Return 1 for true, 0 for false and -1 for None, int8 (values,)."""
    return np.array([-1 if value is None else int(value) for value in values], dtype=np.int8)


def hash_of(group: Sequence[Example]) -> int:
    """Return the hash of a record's content: that of its example, or one for both of a pair."""
    if len(group) == 1:
        return group[0].hash
    return hash_of_text(" ".join(str(example.hash) for example in group))


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
