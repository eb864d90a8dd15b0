"""Folders of a run on its nodes: who writes them, and how they get from one node to the others."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from hearth.base.errors import CheckpointError
from hearth.base.files import sync_below

if TYPE_CHECKING:  # with torch
    from hearth.ranks.world import World

_PIECE = 64 << 20
"""Largest piece, in bytes, sent at once from node to node."""


def choose_writers(folder: Path, world: World) -> None:
    """Let only the first of the nodes that share `folder` write: set `keeps` of all members.

    The first rank of each node leaves a mark there. Each name is
    new, since an NFS client answers for known names from its memory.
    """
    token = world.from_leader(secrets.token_hex(8))
    marks = {rank: folder / f".{token}-{rank}" for rank in world.members}
    own = marks[world.rank]
    if world.local_rank == 0:
        with suppress(OSError):  # whoever writes there next says why that fails
            folder.mkdir(parents=True, exist_ok=True)
            own.touch()
    world.barrier()
    shared = any(marks[rank].exists() for rank in world.members if rank < world.rank)
    world.keeps = world.local_rank == 0 and not shared
    world.barrier()
    if world.local_rank == 0:
        with suppress(OSError):
            own.unlink()


def files_below(folder: Path) -> list[Path]:
    """Return all files below `folder`, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def inside(folder: Path, name: str) -> Path:
    """Return the path of a checkpoint's file; raise `CheckpointError` if it is not in `folder`."""
    place = PurePosixPath(name)
    if not place.parts or place.is_absolute() or ".." in place.parts or "\0" in name:
        raise CheckpointError(
            f"{folder}: {name!r} does not name a file in this checkpoint, and Hearth writes no "
            "such name; look for the node that sent it, and delete that node's checkpoint"
        )
    return folder / place


def broadcast_folder(path: Path | None, source: int, world: World) -> Iterator[tuple[str, bytes]]:
    """Broadcast the folder at `path` on rank `source`; yield its pieces on every rank."""
    pieces = _pieces(path) if path and world.rank == source else iter(())
    while True:
        name, content = next(pieces, (None, b""))
        if (name := world.from_rank(source, name)) is None:
            return
        yield name, world.bytes_from(source, content)


def store_pieces(folder: Path, pieces: Iterable[tuple[str, bytes]]) -> None:
    """Write the files that arrive in `pieces` into `folder`, synced to the disk."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in pieces:
        path = inside(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(content)
    sync_below(folder)


def _pieces(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file in `folder`, large files in several pieces."""
    for path in files_below(folder):
        with path.open("rb") as file:
            content = file.read(_PIECE)
            yield str(path.relative_to(folder)), content
            while content := file.read(_PIECE):
                yield str(path.relative_to(folder)), content
