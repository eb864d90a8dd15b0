"""A run's folder on the controller: its request, and its files from the nodes.

Archives are read within bounds, since a node can be broken, or no friend: nothing is written that
the free space here does not allow or that the node did not announce, and no header is read that no
file follows. Sparse files are refused: a few bytes of an archive stand for any number of bytes on
the disk.
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Protocol

from hearth.base.files import alone, write_whole
from hearth.base.text import byte_count, counted
from hearth.record.send import ANNOUNCEMENT

_COMING = ".coming-"
"""Prefix of the folder that receives files; the pid of the fetching process follows."""


_SHARE_OF_FREE = 0.9
"""Part of the free space here that an archive may take."""

_REQUEST = ("run.yml", "job.sbatch")


def keep(into: Path, text: str, job: str = "") -> bool:
    """Write a run's request, and the script of its Slurm job if it is one, to the folder `into`.

    Return whether anything changed.
    """
    changed = False
    for name, content in zip(_REQUEST, (text, job), strict=True):
        file = into / name
        if not content or (file.is_file() and file.read_text(encoding="utf-8") == content):
            continue
        into.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
        changed = True
    return changed


def forget(into: Path) -> bool:
    """Remove the request of a run that no node has begun; return whether there was one."""
    files = [file for name in _REQUEST if (file := into / name).exists()]
    for file in files:
        file.unlink()
    with suppress(OSError):  # it holds more than that
        into.rmdir()
    return bool(files)


def collect(
    into: Path, names: Collection[str], archive: Readable, copies: Collection[str] = ()
) -> tuple[bool, list[str], str]:
    """Bring the files and folders `names` of an archive to the folder `into`.

    `archive` is what `hearth.record.send` wrote. Those that are `copies` replace only a smaller
    file. Returns whether any changed, those that the archive had, and why it has no more ('' if it
    is whole); none is replaced by a part of it.
    """
    changed, collected = False, []
    try:
        with NodeArchive(archive) as sent:
            into.mkdir(parents=True, exist_ok=True)
            sweep(into)
            # Beside its destination, so that a rename completes it.
            coming = f"{_COMING}{os.getpid()}-"
            with tempfile.TemporaryDirectory(dir=into, prefix=coming) as folder:
                for name in unpacked(sent, names, Path(folder)):
                    with alone(into):
                        changed |= put(Path(folder) / name, into / name, fuller=name in copies)
                    collected.append(name)
    except (tarfile.TarError, OSError, ValueError, RecursionError) as error:
        return changed, collected, str(error)
    return changed, collected, ""


def unpacked(sent: NodeArchive, names: Collection[str], folder: Path) -> Iterator[str]:
    """Write the files of an archive to `folder`; yield each of `names` once all of it is there."""
    current = ""
    for path, content in sent.files(_SHARE_OF_FREE * shutil.disk_usage(folder).free):
        above = [name for name in names if f"{path}/".startswith(f"{name}/")]
        if not (above and safe(path)):
            continue
        if current and current != above[0]:
            yield current
        current, place = above[0], folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("wb") as file:
            shutil.copyfileobj(content, file)
    if current:
        yield current


def safe(name: str) -> bool:
    """Return whether a file name reported by a node stays inside its folder."""
    parts = PurePosixPath(name).parts
    return bool(parts) and parts[0] != "/" and ".." not in parts and "\0" not in name


def same(one: Path, other: Path) -> bool:
    """Return whether two files, or two folders with their contents, are equal."""
    if one.is_dir() != other.is_dir() or not other.exists():
        return False
    if one.is_file():
        return filecmp.cmp(one, other, shallow=False)
    names = {path.relative_to(one) for path in one.rglob("*")}
    return names == {path.relative_to(other) for path in other.rglob("*")} and all(
        same(one / name, other / name) for name in names
    )


def put(fresh: Path, place: Path, fuller: bool = False) -> bool:
    """Replace `place` by `fresh`; return whether anything changed.

    With `fuller`, a file is replaced only by a larger one: a longer record is a later one.
    """
    if same(fresh, place):
        return False
    if fuller and place.is_file() and fresh.stat().st_size <= place.stat().st_size:
        return False
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir():
        shutil.rmtree(place)
    os.replace(fresh, place)
    return True


def sweep(into: Path) -> None:
    """Remove the receiving folders of dead processes: Ctrl-C skips their clean-up."""
    for left in into.glob(f"{_COMING}*"):
        try:
            os.kill(int(left.name.removeprefix(_COMING).partition("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (ValueError, PermissionError):
            continue


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
    """A stream that allows reading up to a limit."""

    def __init__(self, archive: Readable) -> None:
        self._archive, self._left = archive, 0

    def allow(self, count: int) -> None:
        """Allow `count` more bytes, in place of any earlier allowance."""
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
