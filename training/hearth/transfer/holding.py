"""A model, a data file, shards or a checkpoint on this node: complete, or still arriving.

Arriving files are written to a hidden folder beside the target, under their final names; it is
renamed when all are complete and verified. The pieces of a file arrive in order, so the length of
the file shows its progress; a later call reads the existing part and resumes after the last valid
piece.

Code for models is imported only where there is a model: supervisors, which hold checkpoints, load
as little as they can.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.base.errors import SupplyError
from hearth.base.files import sha256_of, sync_below
from hearth.base.places import MANIFEST
from hearth.transfer.pieces import File, Item, checksum

if TYPE_CHECKING:
    from hearth.model.folder import Manifest


def arriving(target: Path) -> Path:
    """Return the folder for the arriving files of `target`."""
    return target.with_name(f".{target.name}.arriving")


def arrived_bytes(target: Path) -> int:
    """Return the bytes of `target` received by an earlier call."""
    return sum(path.stat().st_size for path in arriving(target).glob("*"))


class Holding:
    """One item on this node; one thread adds pieces, others wait for them and read them.

    Args:
        item: from the table.
        piece: bytes of a piece.
        target: the folder of the model or checkpoint, or the data file; shards are beside it.
        shards: paths of shards that are complete on this node, by name.
    """

    def __init__(
        self, item: Item, piece: int, target: Path, shards: Mapping[str, Path] | None = None
    ) -> None:
        self.item, self.target, self._shards = item, target, shards or {}
        self._piece = piece
        self._absent: frozenset[str] = frozenset()
        self._good = [0] * len(item.files)
        self._folder = arriving(target)
        self._news = threading.Condition()

    def leave_out(self, files: Collection[str]) -> None:
        """Do without these files, of weights that this node does not need."""
        self._absent = frozenset(files)

    @property
    def size(self) -> int:
        """Total bytes of the files that this node is to have."""
        return sum(file.size for file in self.item.files if file.name not in self._absent)

    def is_whole(self) -> bool:
        """Return whether the target is complete and unchanged on this node; may read all of it."""
        wanted = {file.name: file.sha256 for file in self.item.files}
        if self.item.key == "data":
            return all(
                name in self._shards or (path.is_file() and sha256_of(path) == sha256)
                for name, sha256 in wanted.items()
                for path in [self._home / name]
            )
        from hearth.model.folder import Damaged, read_manifest, verify

        manifest = read_manifest(self.target / MANIFEST)
        if manifest is None or {n: f.sha256 for n, f in manifest.files.items()} != wanted:
            return False
        if not self._absent.issuperset(manifest.absent):
            return False
        try:
            verify(manifest, self.target)
        except Damaged:
            return False
        return True

    def use_whole(self) -> None:
        """Serve the files of the complete target."""
        with self._news:
            self._folder = self._home
            self._good = [len(file.pieces) for file in self.item.files]
            self._news.notify_all()

    def resume(self) -> int:
        """Verify the part that an earlier call received; return the bytes that need not be sent.

        Raises:
            ModelError: the model would replace a folder that is not Hearth's.
            OSError: the folder cannot be written.
        """
        if self.item.key == "model":
            self._check_replaceable()
        self._folder.mkdir(parents=True, exist_ok=True)
        wanted = {file.name for file in self.item.files} - self._shards.keys()
        if self.item.key == "model":
            self._take_over()
        for path in self._folder.rglob("*"):
            if path.is_file() and str(path.relative_to(self._folder)) not in wanted:
                path.unlink()
        return sum(self._resumed(number, file) for number, file in enumerate(self.item.files))

    def _take_over(self) -> None:
        """Take over files of the target if it holds only some layers of the model."""
        from hearth.model.folder import read_manifest

        manifest = read_manifest(self.target / MANIFEST)
        if manifest is None or not manifest.absent:
            return
        for file in self.item.files:
            known, path = manifest.files.get(file.name), self.target / file.name
            if known and known.sha256 == file.sha256 and path.is_file():
                arriving_file = self._folder / file.name
                arriving_file.unlink(missing_ok=True)
                arriving_file.hardlink_to(path)

    def _resumed(self, number: int, file: File) -> int:
        """Return the number of valid bytes of a partial file; the bytes after them are cut off."""
        if file.name in self._shards:
            self._has(number, len(file.pieces))
            return file.size
        path = self._folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        good = 0
        with path.open("rb") as content:
            for piece in file.pieces:
                if checksum(content.read(self._piece)) != piece:
                    break
                good += 1
                self._has(number, good)
        size = min(good * self._piece, file.size)
        os.truncate(path, size)
        return size

    def missing(self) -> list[tuple[int, int]]:
        """Return the missing pieces as (file number, piece number), in order."""
        return [
            (number, piece)
            for number, file in enumerate(self.item.files)
            if file.name not in self._absent
            for piece in range(self._good[number], len(file.pieces))
        ]

    def add(self, number: int, data: bytes) -> None:
        """Append the next, verified piece of a file."""
        with (self._folder / self.item.files[number].name).open("ab") as file:
            file.write(data)
        self._has(number, self._good[number] + 1)

    def _has(self, number: int, good: int) -> None:
        with self._news:
            self._good[number] = good
            self._news.notify_all()

    def read(self, number: int, piece: int, seconds: float) -> bytes | None:
        """Return a piece, waiting up to `seconds` for it; None if it has not arrived.

        Raises `IndexError` if the file has no such piece.
        """
        if not 0 <= piece < len(self.item.files[number].pieces) or number < 0:
            raise IndexError(piece)
        with self._news:
            if not self._news.wait_for(lambda: self._good[number] > piece, seconds):
                return None
            # Open it under the lock: `land` renames the folder.
            name = self.item.files[number].name
            file = self._shards.get(name, self._folder / name).open("rb")
        begin = piece * self._piece
        with file:
            file.seek(begin)
            # A record, which only grows, may have more bytes by now.
            return file.read(min(self._piece, self.item.files[number].size - begin))

    def land(self) -> None:
        """Verify all files on the disk, and rename them to the target.

        Raises:
            ModelError: the model would replace a folder that is not Hearth's.
            SupplyError: a file differs from the one sent; it is removed, so that it is sent again.
            OSError: the disk is full, or cannot be written.
        """
        absent = {
            file.name
            for file, good in zip(self.item.files, self._good, strict=True)
            if file.name in self._absent and good < len(file.pieces)
        }
        for name in absent:
            (self._folder / name).unlink(missing_ok=True)
        stock = self._stock(absent) if self.item.key == "model" else None
        arrived = [
            file
            for file in self.item.files
            if file.name not in self._shards and file.name not in absent
        ]
        for file in arrived:
            path = self._folder / file.name
            found = stock.files[file.name].sha256 if stock else sha256_of(path)
            if found != file.sha256:
                path.unlink()
                raise SupplyError(
                    f"{path} is not what was sent, although each of its pieces was: something "
                    "changes data on this node, so test its memory and its disk; the next call "
                    "sends the file again"
                )
            with path.open("rb") as content:
                os.fsync(content.fileno())
        if stock:
            stock.write(self._folder / MANIFEST)
        if self.item.key == "checkpoint":
            sync_below(self._folder)
        with self._news:
            if stock:
                self._check_replaceable()
                if self.target.exists():
                    shutil.rmtree(self.target)
            if self.item.key != "data":
                self._folder.rename(self.target)
            else:
                for file in arrived:
                    path = self._folder / file.name
                    path.chmod(0o600)
                    path.replace(self._home / file.name)
                self._folder.rmdir()
            self._folder = self._home

    def _stock(self, absent: Collection[str]) -> Manifest:
        """Return the manifest of the arrived model, with the files that are left out."""
        from hearth.model.folder import FileRecord, take_stock

        stock = take_stock(self._folder, **self.item.about)
        others = [file for file in self.item.files if file.name in absent]
        known = {file.name: FileRecord(file.sha256, file.size, 0) for file in others}
        return replace(stock, files=stock.files | known, absent=tuple(sorted(absent)))

    def _check_replaceable(self) -> None:
        from hearth.model.folder import check_replaceable

        check_replaceable(self.target)

    @property
    def _home(self) -> Path:
        """The final folder of the files."""
        return self.target.parent if self.item.key == "data" else self.target
