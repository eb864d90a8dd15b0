"""Checkpoints from node to node: a file server that offers those of a folder, and its client."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

from hearth.base.errors import SupplyError
from hearth.base.interface import Peer
from hearth.base.text import byte_count
from hearth.record.folders import files_below
from hearth.transfer.chain import SPARE
from hearth.transfer.fetching import FileClient
from hearth.transfer.holding import Holding, arriving
from hearth.transfer.pieces import PIECE, Item, Table, cut
from hearth.transfer.serving import FileServer, Offer

TABLE_PATIENCE = 600.0
"""Seconds that a node may take to read its checkpoint and make the table."""

_FOLDER = re.compile(r"step-(\d{1,18})", re.ASCII)


class CheckpointServer(FileServer):
    """A file server that offers each checkpoint in `folder` by its name."""

    def __init__(
        self, address: str, secret: str, allowed: Iterable[str], folder: Path, port: int = 0
    ) -> None:
        super().__init__(address, port, secret, allowed)
        self._folder = folder
        self._making = threading.Lock()

    def offer(self, name: str) -> Offer | None:
        """Return a checkpoint's table and files, or an empty offer until the table is made."""
        if step_of(name) < 0 or not (self._folder / name).is_dir():
            return None
        with self._making:
            if name not in self._offers:
                self._offers.clear()  # one is asked for at a time: the newest
                self._offers[name] = Offer()
                threading.Thread(target=self._make, args=[name], daemon=True).start()
            return self._offers[name]

    def _make(self, name: str) -> None:
        """Make the table of a checkpoint; withdraw the offer if its files cannot be read."""
        path = self._folder / name
        try:
            files = [cut(file, PIECE, str(file.relative_to(path))) for file in files_below(path)]
        except OSError:
            self._offers.pop(name, None)
            return
        table = Table(PIECE, (Item("checkpoint", name, tuple(files), {}),))
        holding = Holding(table.items[0], PIECE, path)
        holding.use_whole()
        self.show(table, [holding], name)


def newest_name(folder: Path) -> str:
    """Return the name of the newest checkpoint in `folder`; "" without one."""
    names = (path.name for path in folder.glob("step-*"))
    return max((name for name in names if step_of(name) >= 0), key=step_of, default="")


def step_of(name: str) -> int:
    """Return the step of a checkpoint by its folder's name; -1 for any other name."""
    found = _FOLDER.fullmatch(name)
    return int(found[1]) if found else -1


def fetch(folder: Path, name: str, giver: Peer, address: str, secret: str) -> None:
    """Fetch the checkpoint `name` of `giver` into `folder`, from this node's `address`.

    It gets its name once every file is proved. The next call, of this giver or another, resumes a
    partial one.

    Raises:
        SupplyError: the giver did not send it, or the disk has no room for it.
        OSError: it cannot be written.
    """
    target = folder / name
    remove_partial(folder, but=target)
    client = FileClient(
        address, [giver], secret, lambda _: None, name, TABLE_PATIENCE, starting=0.0
    )
    try:
        holding = _holding(client.table(), target)
        missing = holding.size - holding.resume()
        if shutil.disk_usage(holding.target.parent).free < missing + SPARE:
            remove_partial(folder)
            raise SupplyError(f"{byte_count(missing)} more have no room below {folder}")
        client.fill(holding)
        holding.land()
    finally:
        client.close()


def remove_partial(folder: Path, but: Path | None = None) -> None:
    """Remove partial checkpoints, save the one whose final path is `but`."""
    for left in folder.glob(".step-*.arriving"):
        if but is None or left != arriving(but):
            shutil.rmtree(left)


def _holding(table: Table, target: Path) -> Holding:
    """Return the arriving checkpoint. Raises `SupplyError` for the table of anything else."""
    match table:
        case Table(piece, (Item("checkpoint", name, _, _) as item,)) if name == target.name:
            if 0 < piece <= PIECE:
                return Holding(item, piece, target)
    raise SupplyError(f"the node offers something other than the checkpoint {target.name}")
