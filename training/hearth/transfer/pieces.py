"""Table of the sent files: model, data or checkpoint, cut into pieces with a checksum each.

The node that sends makes the table from the files on its disk. Where nodes relay it, its checksum
reaches the others over SSH, so that no relaying node can alter a piece.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hearth.base.errors import SupplyError
from hearth.base.json_lines import read_as
from hearth.base.text import brief

Key = Literal["model", "data", "checkpoint"]

_NAME = r"(\.{0,2}[^./\x00-\x1f\x7f]|\.{3})[^/\x00-\x1f\x7f]*"
_IN_A_FOLDER = re.compile(_NAME)
_BELOW_A_FOLDER = re.compile(f"{_NAME}(/{_NAME})*")
"""Names of files: none is empty, `.` or `..`, and none has a NUL or a command to a terminal."""

PIECE = 2 << 20
"""Bytes of a piece: smaller ones make the table large, larger ones fill a chain slowly."""


@dataclass(frozen=True)
class File:
    """A file by its name: size in bytes, checksum of the whole and of each piece."""

    name: str
    size: int
    sha256: str
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """A model, a data file, shards or a checkpoint.

    `about` is the origin of a model, from its manifest.
    """

    key: Key
    name: str
    files: tuple[File, ...]
    about: dict[str, str | None]

    @property
    def size(self) -> int:
        """Total bytes of its files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class Table:
    """All items to send, in pieces of at most `piece` bytes."""

    piece: int
    items: tuple[Item, ...]

    def text(self) -> str:
        """Serialize the table; equal tables give equal text."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def digest(self) -> str:
        """The checksum of the serialized table."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    @classmethod
    def of(cls, text: str | bytes) -> Table:
        """Parse a serialized table.

        Raises `SupplyError` if the text is not a table.
        """
        try:
            table: Table = read_as(cls, json.loads(text))
            for item in table.items:
                _check(item, table.piece)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SupplyError(f"this is no table of what is sent ({brief(error)})") from error
        return table


def _check(item: Item, piece: int) -> None:
    """Raise `ValueError` unless an item has names, sizes and pieces that an item can have."""
    if not _IN_A_FOLDER.fullmatch(item.name):
        raise ValueError(f"{item.name!r} is no name")
    for file in item.files:
        if not _BELOW_A_FOLDER.fullmatch(file.name):
            raise ValueError(f"{file.name!r} is no name of a file")
        if piece < 1 or file.size < 0 or len(file.pieces) != -(-file.size // piece):
            raise ValueError(f"{file.name!r} is not cut into pieces of {piece} bytes")


def cut(path: Path, piece: int, name: str = "") -> File:
    """Return the table entry of the file at `path`, by `name` or its own; reads it once."""
    whole, pieces, size = hashlib.sha256(), [], 0
    with path.open("rb") as file:
        while data := file.read(piece):
            whole.update(data)
            pieces.append(checksum(data))
            size += len(data)
    return File(name or path.name, size, whole.hexdigest(), tuple(pieces))


def checksum(data: bytes) -> str:
    """Return the checksum of a piece."""
    return hashlib.sha256(data).hexdigest()
