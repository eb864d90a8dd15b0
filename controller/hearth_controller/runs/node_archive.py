"""Archives from a node, read within bounds: a node can be broken, or no friend.

Nothing is written that the free space here does not allow or that the node did not announce, and
no header is read that no file follows. Sparse files are refused: a few bytes of an archive stand
for any number of bytes on the disk.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from typing import IO, Protocol

from hearth.base.text import byte_count, counted
from hearth.record.send import ANNOUNCEMENT

_PER_FILE = 1 << 14
"""Bytes that a file counts beside its content: disks have an inode for about as many."""

_HEADERS = 1 << 15
"""Bytes that the headers of one file may have; those of the longest path take a third of it."""


class TooMuch(tarfile.TarError):
    """An archive has more than it may have; the message says what."""


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return about `size` bytes, none at the end."""


class _Metered:
    """A stream from which only as much can be read as was allowed last."""

    def __init__(self, archive: Readable) -> None:
        self._archive, self._left = archive, 0

    def allow(self, count: int) -> None:
        """Allow `count` more bytes, whatever was left before."""
        self._left = count

    def read(self, size: int, /) -> bytes:
        """Return about `size` bytes, none at the end. Raises `TooMuch`."""
        data = self._archive.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise TooMuch("the node sends something other than the files that it was asked for")
        return data


class NodeArchive:
    """The archive that `hearth.record.send` wrote on a node, file by file; a context manager."""

    def __init__(self, archive: Readable) -> None:
        self._metered = _Metered(archive)
        self._metered.allow(_HEADERS)
        self._members = tarfile.open(  # noqa: SIM115 (this is a context manager itself)
            fileobj=self._metered, mode="r|", encoding="utf-8"
        )

    def __enter__(self) -> NodeArchive:
        return self

    def __exit__(self, *_: object) -> None:
        self._members.close()

    def files(self, room: float) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield name and content of each regular file, within `room` bytes and the announced ones.

        Raises `tarfile.TarError` or `OSError` with the reason why there is no more of it.
        """
        begins = True
        for member in self._members:
            if member.issparse() or member.size < 0:
                raise TooMuch(f"{member.name} is a sparse file, which no run writes")
            if (left := room - member.size - _PER_FILE) < 0:
                raise TooMuch(
                    f"{member.name} has {byte_count(member.size)}, and there was room for "
                    f"{byte_count(room)}: free some space here, unless the node announced less"
                )
            self._metered.allow(member.size + _HEADERS)
            content = self._members.extractfile(member) if member.isreg() else None
            if content and begins and member.name == ANNOUNCEMENT:
                left = _announced(content, left)
            elif content:
                yield member.name, content
            room, begins = left, False


def _announced(content: IO[bytes], room: float) -> float:
    """Return the bytes that the announced files may take. Raises `TooMuch` if there is no room."""
    try:
        told = json.loads(content.read(_HEADERS))
        files, size = int(told["files"]), int(told["bytes"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise TooMuch("the node does not say how much it sends") from error
    if (wanted := size + files * _PER_FILE) > room:
        raise TooMuch(
            f"the node has {byte_count(size)} in {counted(files, 'file')}, and this computer room "
            f"for {byte_count(room)}; free some space here"
        )
    return float(wanted)
