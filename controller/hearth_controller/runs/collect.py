"""A run's folder on the controller: its request, and its files from the nodes."""

from __future__ import annotations

import filecmp
import os
import shutil
import tarfile
import tempfile
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

from hearth.base.files import alone, write_whole
from hearth_controller.runs.node_archive import NodeArchive, Readable

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
