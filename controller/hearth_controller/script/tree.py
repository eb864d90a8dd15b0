"""The files of a folder that are transferred to every node, by checksum."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hearth.base.errors import ConfigError
from hearth.base.files import sha256_of
from hearth.base.text import byte_count, counted
from hearth_controller.base.paths import as_typed

MOST_CODE = 100_000_000
"""Maximum bytes of a code folder; a larger one holds data or checkpoints."""

MOST_CODE_FILES, MOST_DATA_FILES = 5_000, 20_000

_GIVE_UP = 200_000
"""Number of files after which counting stops."""

_BIGGEST, _SHOWN = 4, 6
_MADE = "__pycache__"


@dataclass(frozen=True)
class Tree:
    """The files to transfer to every node.

    Attributes:
        source: Folder on this computer; the paths of `files` are relative to it.
        files: SHA-256 checksum by path.
        size: Total bytes of the files.
        left_out: Paths that are not transferred.
    """

    source: Path
    files: Mapping[str, str]
    size: int
    left_out: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """One checksum of all names and contents."""
        each = "".join(f"{self.files[path]} {path}\n" for path in sorted(self.files))
        return hashlib.sha256(each.encode()).hexdigest()

    @property
    def summary(self) -> str:
        """A summary of the size and of the skipped paths."""
        count = len(self.files)
        words = f"{counted(count, 'file')}, {byte_count(self.size)}"
        if not self.left_out:
            return words
        more = len(self.left_out) - _SHOWN
        rest = f" and {more} more" if more > 0 else ""
        return f"{words}; left out: {', '.join(self.left_out[:_SHOWN])}{rest}"


@dataclass
class _Listing:
    """The files below a folder in bytes by path, the skipped paths and the unreadable ones."""

    sizes: dict[str, int] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    closed: list[OSError] = field(default_factory=list)


def code_tree(folder: Path, data: Path | None = None) -> Tree:
    """List the files of a script's folder for the nodes; `data` in it is transferred separately.

    It skips hidden folders, Python's generated files, virtual environments and links to folders.

    Raises:
        ConfigError: The folder is a home or above one, too large, or unreadable.
    """
    home = Path.home().resolve()
    way_out = "put the script into a folder of its own, or name another one by -e script_folder="
    if folder == home or folder in home.parents:
        raise ConfigError(f"script: {folder} is not the folder of a project; {way_out}")
    found = _listed(folder, data)
    if sum(found.sizes.values()) > MOST_CODE or len(found.sizes) > MOST_CODE_FILES:
        raise ConfigError(
            f"script: its folder {as_typed(folder)} has {_much(found.sizes)}; every node gets a "
            f"copy, of {byte_count(MOST_CODE)} in {MOST_CODE_FILES} files at most. The biggest are "
            f"{_biggest(found.sizes)}. Give data by -e script_data=, {way_out}"
        )
    return _summed(folder, found, "script")


def data_tree(path: Path) -> Tree:
    """List the files of a data file or folder for the nodes; paths begin with its name.

    Raises:
        ConfigError: It has too many files, or is unreadable.
    """
    if path.is_file():
        found = _Listing({path.name: path.stat().st_size})
        return _summed(path.parent, found, "script_data")
    found = _listed(path)
    if len(found.sizes) > MOST_DATA_FILES:
        raise ConfigError(
            f"script_data: {as_typed(path)} has {_much(found.sizes)}; each is compared, "
            f"{MOST_DATA_FILES} at most. The biggest are {_biggest(found.sizes)}. Pack them"
        )
    found.sizes = {f"{path.name}/{name}": size for name, size in found.sizes.items()}
    return _summed(path.parent, found, "script_data")


def _listed(folder: Path, data: Path | None = None) -> _Listing:
    """List the files below a folder that are a person's own code or data."""
    found = _Listing()
    for place, folders, files in os.walk(folder, onerror=found.closed.append):
        here = Path(place)
        stay = {name for name in folders if _stays(here / name, data)}
        folders[:] = sorted(set(folders) - stay)
        for name in files:
            path = here / name
            if path == data or not path.is_file():  # a broken link, a socket
                stay.add(name)
            else:
                found.sizes[path.relative_to(folder).as_posix()] = path.stat().st_size
        found.left_out |= {
            name if name == _MADE else (here / name).relative_to(folder).as_posix() for name in stay
        }
        if len(found.sizes) > _GIVE_UP:
            break
    return found


def _stays(folder: Path, data: Path | None) -> bool:
    """Return whether to skip a folder: not a person's own work, or the separate data."""
    made = folder.name == _MADE or folder.name.endswith(".egg-info")
    environment = (folder / "pyvenv.cfg").exists() or (folder / "conda-meta").exists()
    hidden = folder.name.startswith(".")
    return hidden or made or environment or folder.is_symlink() or folder == data


def _summed(source: Path, found: _Listing, word: str) -> Tree:
    """Return the tree with the checksum of each file."""
    sums: dict[str, str] = {}
    closed = list(found.closed)
    findings = []
    for name in found.sizes:
        try:
            name.encode()
            sums[name] = sha256_of(source / name)
        except UnicodeEncodeError:
            findings.append(f"{word}: the name {name!r} is not UTF-8; rename it")
        except OSError as error:
            closed.append(error)
    findings += [f"{word}: {error.filename} cannot be read: {error.strerror}" for error in closed]
    if findings:
        raise ConfigError(*findings)
    return Tree(source, sums, sum(found.sizes.values()), tuple(sorted(found.left_out)))


def _much(sizes: Mapping[str, int]) -> str:
    more = "more than " if len(sizes) > _GIVE_UP else ""
    return f"{more}{byte_count(sum(sizes.values()))} in {more}{len(sizes)} files"


def _biggest(sizes: Mapping[str, int]) -> str:
    """Return the largest entries of the folder as text."""
    entries: dict[str, list[int]] = {}
    for path, size in sizes.items():
        entries.setdefault(path.partition("/")[0], []).append(size)
    most = sorted(entries, key=lambda name: -sum(entries[name]))[:_BIGGEST]
    return ", ".join(
        f"{name} ({byte_count(sum(entries[name]))}, {len(entries[name])} files)"
        if len(entries[name]) > 1
        else f"{name} ({byte_count(sum(entries[name]))})"
        for name in most
    )
