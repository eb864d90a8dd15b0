"""Caches the tokens of a data set on disk, so that a node tokenises it once.

An entry is a folder `<cache>/<key>/` with one file per array, and `entry.json` with their checksums
and the remarks. It is written under a temporary name and renamed; under a lock one of several
processes does the work while the others wait. An entry that does not match its checksums is
rebuilt.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import numpy as np

from hearth.base.errors import DataError
from hearth.base.files import replaced_folder, sha256_of
from hearth.base.locks import locked
from hearth.data.documents import Documents
from hearth.data.findings import Note

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
