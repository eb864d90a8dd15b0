"""Records of a data set, as the readers of formats yield them. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hearth.data.findings import Findings


@dataclass(frozen=True)
class Record:
    """One record: its 1-based line (or row) and its columns, empty ones left out."""

    line: int
    fields: dict[str, Any]


@dataclass(frozen=True)
class Records:
    """A data set that can be read repeatedly, in the same order.

    Attributes:
        name: its name in messages.
        sha256: checksum of its content.
        read: yields the valid records and adds problems to the findings.
        form: suffixes of its files, which decide how their bytes are read.
        files: names of its files if it has several; lines are numbered as `place_of` takes them.
    """

    name: str
    sha256: str
    read: Callable[[Findings], Iterator[Record]]
    form: str = ""
    files: tuple[str, ...] = ()
