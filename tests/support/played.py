"""The record of `scripts/test --all`: a call that was stopped goes on with the files it lacks.

HEARTH_PLAYED names the record: one passed test a line. A file with a failed or missing test
is played again as a whole, since tests of one file may build on each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

RECORD = os.environ.get("HEARTH_PLAYED", "")
_SIZE = "HEARTH_PLAYED_SIZE"


def begin() -> None:
    """Remember how long the record is now: all workers of this call read as far."""
    if RECORD:
        path = Path(RECORD)
        os.environ.setdefault(_SIZE, str(path.stat().st_size if path.is_file() else 0))


def earlier() -> set[str]:
    """Return the tests that passed in earlier calls."""
    if not RECORD or not int(os.environ[_SIZE]):
        return set()
    with open(RECORD, "rb") as file:
        return set(file.read(int(os.environ[_SIZE])).decode().splitlines())


def passed(test: str) -> None:
    """Add a passed test to the record."""
    if RECORD:
        with open(RECORD, "a") as file:
            file.write(f"{test}\n")


def whole_files(tests: Iterable[str], done: set[str]) -> set[str]:
    """Return the files whose tests are all done."""
    unfinished = {file_of(test) for test in tests if test not in done}
    return {file_of(test) for test in done} - unfinished


def file_of(test: str) -> str:
    """Return the file of a test's node id."""
    return test.partition("::")[0]
