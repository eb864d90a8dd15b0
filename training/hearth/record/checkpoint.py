"""Checkpoints on every node, written atomically and copied between nodes.

A checkpoint is a folder `step-00000050/` with the trained weights (`adapter/` or `model/`), the
state of optimizer, schedule and loss scaler, and `checkpoint.json` with the step and the checksum
of every file. It is written under a temporary name, synced and renamed, so that a crash or a full
disk leaves the previous checkpoint intact.

The run's record is in it as a link, which takes no room: the record only grows, and the bytes that
it had then, `recorded`, are those of the checkpoint.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearth.base.errors import CheckpointError, DiskError
from hearth.base.files import read_object, sha256_of, sync, sync_below
from hearth.record.folders import broadcast_folder, files_below, inside, store_pieces
from hearth.record.lines import METRICS
from hearth.record.own_disk import DISK_ERRORS, number_of

if TYPE_CHECKING:  # with torch
    from hearth.ranks.world import World

_MANIFEST = "checkpoint.json"
_TEMPORARY = ".writing-"


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: every file matches its recorded checksum."""

    path: Path
    step: int
    facts: dict[str, Any]

    @property
    def recorded(self) -> int:
        """Bytes of the run's record that are the checkpoint's; -1 for all, a copy of that time."""
        found = self.facts.get("recorded")
        return found if type(found) is int else -1


def save(
    folder: Path,
    step: int,
    facts: Mapping[str, Any],
    keep: int,
    write: Callable[[Path], None],
    metrics: Path | None = None,
) -> Path:
    """Write a checkpoint after `step` steps into `folder` and return its path.

    `write` puts the files into the folder it is given; `facts` are recorded with the checksums and
    identify the run by `created` and the launch of the run by `launch`. The newest `keep`
    checkpoints up to `step` stay. `metrics` is the run's record, synced.

    If the folder is removed meanwhile, it is written once more.

    Raises `DiskError` if the disk is full or cannot be written; earlier checkpoints stay.
    """
    final = folder / f"step-{step:08d}"

    def attempt() -> None:
        temporary = folder / f"{_TEMPORARY}{final.name}"
        folder.mkdir(parents=True, exist_ok=True)
        _recover(folder)
        _write_complete(temporary, step, facts, write, metrics)
        _publish(temporary, final)
        for old in sorted(path for path in folder.glob("step-*") if path <= final)[:-keep]:
            shutil.rmtree(old)

    try:
        try:
            attempt()
        except DISK_ERRORS as error:
            if number_of(error) != errno.ENOENT:
                raise
            attempt()  # the folder was removed meanwhile
    except DISK_ERRORS as error:
        raise not_written(folder, f"the checkpoint after step {step}", error) from error
    return final


def not_written(checkpoints: Path, what: str, error: Exception) -> DiskError:
    """Return the error for a failed write of `what`.

    It names the newest complete checkpoint in `checkpoints`: the run can be resumed from it.
    """
    kept = newest(checkpoints, warn=lambda _: None)
    place = getattr(error, "filename", None) or checkpoints
    number = number_of(error) or errno.EIO
    if number in (errno.ENOSPC, errno.EDQUOT):
        cause = f"the disk of {place} is full ({os.strerror(number)})"
        cure = "Free some space, then resume"
    elif number == errno.ENOENT:
        cause, cure = f"{place} was removed meanwhile", "Resume the run"
    else:
        why = getattr(error, "strerror", None) or error
        cause, cure = f"{place} cannot be written ({why})", "Make it writable, then resume"
    last = (
        f"the last good checkpoint is {kept.path.name}" if kept else "this node has no checkpoint"
    )
    return DiskError(
        f"{what} was not written: {cause}; {last}. {cure}: the newest checkpoint of any node is "
        "taken"
    )


def _write_complete(
    folder: Path,
    step: int,
    facts: Mapping[str, Any],
    write: Callable[[Path], None],
    metrics: Path | None,
) -> None:
    """Write a checkpoint with the checksums of its files into `folder`, synced to the disk.

    Delete the folder if that fails.
    """
    try:
        folder.mkdir()
        write(folder)
        sums = {str(path.relative_to(folder)): sha256_of(path) for path in files_below(folder)}
        if metrics:
            facts = {**facts, "recorded": metrics.stat().st_size}
            _link(metrics, folder / METRICS)
        content = json.dumps({"step": step, **facts, "files": sums}, indent=1)
        (folder / _MANIFEST).write_text(content + "\n")
        sync_below(folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _link(file: Path, place: Path) -> None:
    """Link `file` to `place`; copy it where there are no links, as on FAT."""
    try:
        place.hardlink_to(file)
    except OSError:
        shutil.copyfile(file, place)


def _publish(temporary: Path, final: Path) -> None:
    """Rename a finished checkpoint into place, replacing one of the same step."""
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    sync(final.parent)


def _recover(folder: Path) -> None:
    """After a crash: publish complete checkpoints, delete partial ones.

    When a checkpoint replaces another of its step, the temporary folder may be the only copy.
    """
    for left_over in folder.glob(f"{_TEMPORARY}*"):
        try:
            _read(left_over)
        except CheckpointError:
            shutil.rmtree(left_over)
        else:
            _publish(left_over, folder / left_over.name.removeprefix(_TEMPORARY))


def _read(path: Path) -> Checkpoint:
    """Return the checkpoint at `path`. Raises `CheckpointError` if it is incomplete or altered."""
    try:
        facts = read_object(path / _MANIFEST) or {}
        step, files = facts["step"], facts["files"]
        if type(step) is not int or not isinstance(files, dict):
            raise TypeError(f"{_MANIFEST} is damaged")
        for name, expected in files.items():
            if sha256_of(inside(path, name)) != expected:
                raise CheckpointError(f"{path / name} does not have its recorded checksum")
        return Checkpoint(path, step, facts)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is not complete: {error}") from error


def newest(
    folder: Path, warn: Callable[[str], None], created: str | None = None
) -> Checkpoint | None:
    """Return the newest complete checkpoint in `folder`, or None.

    Incomplete or altered checkpoints are skipped with a message to `warn`; if `created` is given,
    so are those of another run of the same name.
    """
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            found = _read(path)
        except CheckpointError as error:
            warn(f"checkpoint skipped: {error}")
            continue
        if created in (None, found.facts.get("created")):
            return found
        warn(f"checkpoint skipped: {path} belongs to another run of this name")
    return None


def share_newest(
    folder: Path, created: str, world: World, warn: Callable[[str], None]
) -> Checkpoint | None:
    """Return the newest checkpoint on any node, after copying it to all nodes, on every rank.

    `created` identifies the run. The lowest rank with the newest step sends its checkpoint to nodes
    that lack it and to nodes whose checkpoint of that step differs: in the launch or the group of
    it, since those without each other learn different things in the same number of steps; or in the
    best loss, since the last step is saved again if its evaluation is the best, and not every node
    may have got that far (ranks with different losses would diverge). None if no node has a
    checkpoint.
    """
    if world.keeps:
        _recover(folder)
    world.barrier()
    own = newest(folder, warn, created)
    facts = own.facts if own else {}
    same = (facts.get(name) for name in ("launch", "generation", "best"))
    held = world.gather((own.step if own else -1, *same))
    wanted = max(held, key=lambda each: each[0])
    step = wanted[0]
    if step < 0:
        return None
    source = world.members[held.index(wanted)]
    if all(each == wanted for each in held):
        return own
    pieces = broadcast_folder(own.path if own else None, source, world)
    if world.keeps and held[world.members.index(world.rank)] != wanted:
        try:
            _store(folder, step, pieces)
        except OSError as error:
            raise not_written(folder, f"the checkpoint after step {step}", error) from error
    else:
        deque(pieces, maxlen=0)  # take part in the broadcast and discard the pieces
    world.barrier()
    return _read(folder / f"step-{step:08d}")


def _store(folder: Path, step: int, pieces: Iterable[tuple[str, bytes]]) -> None:
    """Write another node's checkpoint, received in `pieces`, into `folder`."""
    final = folder / f"step-{step:08d}"
    temporary = folder / f"{_TEMPORARY}{final.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    store_pieces(temporary, pieces)
    _publish(temporary, final)
