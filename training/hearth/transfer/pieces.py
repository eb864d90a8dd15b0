"""Table of the sent files: model and data, cut into pieces with a checksum each.

The node that sends makes the table from the files on its disk. The table's checksum reaches the
other nodes over SSH, so that no relaying node can alter a piece.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from hearth.base.errors import SupplyError

Key = Literal["model", "data"]

Name = Annotated[str, Field(pattern=r"^(\.{0,2}[^./\x00]|\.{3})[^/\x00]*$")]
"""Name of a file in a folder: neither empty nor `.` nor `..`, without a slash or NUL."""

PIECE = 2 << 20
"""Bytes of a piece: smaller ones make the table large, larger ones fill a chain slowly."""


@dataclass(frozen=True)
class File:
    """A file by its plain name: size in bytes, checksum of the whole and of each piece."""

    name: Name
    size: int
    sha256: str
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """A model, a data file or shards. `about` is the origin of a model, from its manifest."""

    key: Key
    name: Name
    files: tuple[File, ...]
    about: Mapping[str, str | None]

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
    def of(cls, text: str) -> Table:
        """Parse a serialized table.

        Raises `SupplyError` if the text is not a table.
        """
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValueError as error:
            raise SupplyError(f"this is no table of what is sent ({error})") from error


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
