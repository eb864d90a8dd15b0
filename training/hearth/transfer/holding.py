"""A model or a data file as it lies on this node: whole, or still arriving.

What arrives lies in a hidden folder beside its place, under the names that its files will have, and
is renamed when it is whole and proved. The pieces of a file arrive in their order, so the length of
the file says how far it came; a later call reads what is there and goes on behind the last good
piece.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from hearth.base.errors import SupplyError
from hearth.base.files import sha256_of
from hearth.base.places import MANIFEST
from hearth.model.folder import Damaged, read_manifest, take_stock, verify
from hearth.transfer.pieces import File, Item, checksum


def arriving(target: Path) -> Path:
    """Return the folder for what arrives and will be `target`."""
    return target.with_name(f".{target.name}.arriving")


def arrived_bytes(target: Path) -> int:
    """Return the bytes of `target` received by an earlier call."""
    return sum(path.stat().st_size for path in arriving(target).glob("*"))


class Holding:
    """One thing on this node; one thread adds pieces, others wait for them and read them.

    Args:
        item: what it is.
        piece: bytes of a piece.
        target: the model's folder, or the data file.
    """

    def __init__(self, item: Item, piece: int, target: Path) -> None:
        self.item, self.target = item, target
        self._piece = piece
        self._good = [0] * len(item.files)
        self._folder = arriving(target)
        self._news = threading.Condition()

    def is_whole(self) -> bool:
        """Return whether this node has all of it in its place, unchanged; reads it if need be."""
        wanted = {file.name: file.sha256 for file in self.item.files}
        if self.item.key == "data":
            return self.target.is_file() and sha256_of(self.target) == wanted[self.target.name]
        manifest = read_manifest(self.target / MANIFEST)
        if manifest is None or {n: f.sha256 for n, f in manifest.files.items()} != wanted:
            return False
        try:
            verify(manifest, self.target)
        except Damaged:
            return False
        return True

    def use_whole(self) -> None:
        """Give others what lies in its place."""
        with self._news:
            self._folder = self._home
            self._good = [len(file.pieces) for file in self.item.files]
            self._news.notify_all()

    def resume(self) -> int:
        """Prove what an earlier call has brought, and take what is already here from its place.

        Returns the bytes that need not be sent. Raises `OSError` if the folder cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        wanted = {file.name for file in self.item.files}
        for path in self._folder.iterdir():
            if path.name not in wanted:
                path.unlink()
        return sum(self._resumed(number, file) for number, file in enumerate(self.item.files))

    def _resumed(self, number: int, file: File) -> int:
        """Return the number of valid bytes of a partial file; the bytes after them are cut off."""
        path, here = self._folder / file.name, self._home / file.name
        if not path.exists() and _is(here, file):
            _same_file(here, path)
        if not path.exists():
            path.touch()
        good = 0
        with path.open("rb") as content:
            for piece in file.pieces:
                if checksum(content.read(self._piece)) != piece:
                    break
                good += 1
                self._has(number, good)
        size = min(good * self._piece, file.size)
        if path.stat().st_size != size:
            if path.stat().st_nlink > 1:  # what lies in its place is not ours to change
                shutil.copyfile(path, own := path.with_name(f"{path.name}.own"))
                own.replace(path)
            os.truncate(path, size)
        return size

    def missing(self) -> list[tuple[int, int]]:
        """Return the missing pieces as (file number, piece number), in order."""
        return [
            (number, piece)
            for number, file in enumerate(self.item.files)
            for piece in range(self._good[number], len(file.pieces))
        ]

    def add(self, number: int, data: bytes) -> None:
        """Keep the next piece of a file, which has been proved."""
        with (self._folder / self.item.files[number].name).open("ab") as file:
            file.write(data)
        self._has(number, self._good[number] + 1)

    def _has(self, number: int, good: int) -> None:
        with self._news:
            self._good[number] = good
            self._news.notify_all()

    def read(self, number: int, piece: int, seconds: float) -> bytes | None:
        """Return a piece, waiting so long for it; None if it has not come."""
        with self._news:
            if not self._news.wait_for(lambda: self._good[number] > piece, seconds):
                return None
            # Not after the lock is free: the folder may be on its way to another name.
            file = (self._folder / self.item.files[number].name).open("rb")
        with file:
            file.seek(piece * self._piece)
            return file.read(self._piece)

    def land(self) -> None:
        """Prove all of it as it lies on the disk, and put it in its place.

        Raises:
            SupplyError: a file is not what was sent; it is removed, so that it is sent again.
            OSError: the disk is full, or cannot be written.
        """
        stock = take_stock(self._folder, *self._about()) if self.item.key == "model" else None
        for file in self.item.files:
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
        with self._news:
            if stock:
                if self.target.exists():
                    shutil.rmtree(self.target)
                self._folder.rename(self.target)
            else:
                path = self._folder / self.target.name
                path.chmod(0o600)
                path.replace(self.target)
                self._folder.rmdir()
            self._folder = self._home

    @property
    def _home(self) -> Path:
        """The folder that has the files once all are there."""
        return self.target if self.item.key == "model" else self.target.parent

    def _about(self) -> tuple[str, str, str | None]:
        about = self.item.about
        return str(about["id"]), str(about["origin"]), about["revision"]


def _is(path: Path, file: File) -> bool:
    """Return whether `path` has the content of a file of the table."""
    same_size = path.is_file() and path.stat().st_size == file.size
    return same_size and sha256_of(path) == file.sha256


def _same_file(here: Path, path: Path) -> None:
    """Put the file that is `here` at `path` too, without copying it where that can be."""
    try:
        os.link(here, path)
    except OSError:  # a file system without links
        shutil.copyfile(here, path)
