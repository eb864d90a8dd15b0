"""Resolves the `dataset` setting to a file, token shards or a data set on the Hub."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from pathlib import Path
from string import whitespace

from hearth.base.errors import DataError, did_you_mean
from hearth.base.text import listed

SHIPPED = Path(__file__).resolve().parents[2] / "datasets"
SUFFIXES = (".jsonl", ".txt", ".csv", ".parquet")
SHARD_SUFFIXES = (".bin", ".npy")
# Some of these cannot be read but surely mean files: no Hub data set has such a suffix.
_OTHER_SUFFIXES = (".json", ".tsv", ".gz", ".zip", ".xz", ".bz2", ".zst", ".md", ".xlsx")
_FILE_SUFFIXES = (*SUFFIXES, *SHARD_SUFFIXES, *_OTHER_SUFFIXES)
_HUB_NAME = re.compile(r"((?:[\w.-]+/)?[\w.-]+)(?::([\w.-]+))?")


@dataclass(frozen=True)
class LocalFile:
    """A data file and its `name` in messages."""

    path: Path
    name: str


@dataclass(frozen=True)
class ShardFiles:
    """Token shards: the files in the order of their names, and the `name` or pattern as typed."""

    paths: tuple[Path, ...]
    name: str


@dataclass(frozen=True)
class HubDataset:
    """A data set on the Hub; its `train` split is used."""

    id: str
    config: str | None

    @property
    def name(self) -> str:
        """The name in messages: `id` or `id:config`."""
        return f"{self.id}:{self.config}" if self.config else self.id


def shipped_names() -> list[str]:
    """Return the names of the data sets that come with Hearth, sorted."""
    return sorted(path.stem for path in SHIPPED.glob("*.jsonl"))


def locate(dataset: str | Path) -> LocalFile | ShardFiles | HubDataset:
    """Resolve `dataset`: a shipped data set, a file, token shards, or `name[:config]` on the Hub.

    An existing file, a name with a data file's suffix, or a name written as a path is a file;
    a pattern such as `data/*_train_*.bin` is many token shards.

    Raises `DataError` if the file is missing or unusable, or if the name is not valid.
    """
    text = str(dataset)
    if text in shipped_names():
        return LocalFile(SHIPPED / f"{text}.jsonl", f"{text}.jsonl")
    path = Path(text).expanduser()
    if glob.has_magic(text) and not path.is_file():
        return ShardFiles(_matching(path), text)
    written_as_path = text.startswith(("/", "./", "../", "~")) or isinstance(dataset, Path)
    if (
        path.is_file()
        or path.is_symlink()
        or written_as_path
        or path.suffix.lower() in _FILE_SUFFIXES
    ):
        checked = _checked(path)
        is_shard = checked.suffix.lower() in SHARD_SUFFIXES
        return ShardFiles((checked,), text) if is_shard else LocalFile(checked, text)
    if path.is_dir():
        raise _is_folder(path)
    hub_name = _HUB_NAME.fullmatch(text)
    if not hub_name:
        raise DataError(
            f"dataset: '{text}' is neither a file nor a Hub name such as owner/name or "
            "owner/name:config; check the spelling"
        )
    if near := did_you_mean(text, shipped_names()):
        raise DataError(f"dataset: there is no data set '{text}'{near}")
    return HubDataset(*hub_name.groups())


def shard_files(setting: str, value: str) -> ShardFiles:
    """Return the token shards that the setting named `setting` gives by its `value`.

    Raises `DataError` if they are missing or something else.
    """
    found = locate(value)
    if not isinstance(found, ShardFiles):
        raise DataError(
            f"{setting}: '{value}' is no token shard; give files that end in "
            f"{' or '.join(SHARD_SUFFIXES)}, by a name or a pattern such as 'data/*_val_*.bin'"
        )
    return found


def _matching(pattern: Path) -> tuple[Path, ...]:
    """Return the token shards that match `pattern`, in the order of their names."""
    paths = [Path(each) for each in sorted(glob.glob(str(pattern), recursive=True))]
    files = [path for path in paths if path.is_file()]
    if not files:
        folder = pattern.parent
        beside = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
        there = f"{folder} has {listed(beside)}" if beside else f"{folder} is empty or missing"
        raise DataError(f"{pattern}: no file matches this pattern; {there}")
    if others := [path.name for path in files if path.suffix.lower() not in SHARD_SUFFIXES]:
        raise DataError(
            f"{pattern}: it matches {listed(others)}; a pattern is for token shards "
            f"({', '.join(SHARD_SUFFIXES)}), so narrow it, or give one data file by its name"
        )
    return tuple(files)


def _checked(path: Path) -> Path:
    """Return `path` after checking that it is readable, not empty and of a supported format."""
    if path.is_dir():
        raise _is_folder(path)
    if path.is_symlink() and not path.exists():
        raise DataError(
            f"{path}: this link leads to {path.readlink()}, which is not there; bring that file "
            "back, or give another"
        )
    if not path.exists():
        raise DataError(f"{path}: there is no such file{_near(path)}; check the path")
    suffix = path.suffix.lower()
    if suffix in SHARD_SUFFIXES:
        return path  # its reader knows more
    if suffix not in SUFFIXES:
        ending = f"'{suffix}' files are" if suffix else "a file without an ending is"
        way_out = {
            ".json": "write one object a line and name it .jsonl",
            ".tsv": "name it .csv, tabs are understood",
            ".gz": "unpack it first",
            ".zip": "unpack it first",
        }.get(suffix, f"give a file that ends in {', '.join((*SUFFIXES, *SHARD_SUFFIXES))}")
        raise DataError(f"{path}: {ending} not read; {way_out}")
    try:
        empty = not _has_content(path)
    except OSError as error:
        raise DataError(f"{path}: this file cannot be read ({error.strerror})") from error
    if empty:
        raise DataError(f"{path}: this file is empty; there is nothing to train on")
    return path


def _has_content(path: Path) -> bool:
    """Return whether the file contains anything but a byte order mark and white space."""
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(1 << 20), b"")
        return any(chunk.strip(b"\xef\xbb\xbf" + whitespace.encode()) for chunk in chunks)


def _is_folder(path: Path) -> DataError:
    known = (*SUFFIXES, *SHARD_SUFFIXES)
    files = sorted(p.name for p in path.iterdir() if p.suffix.lower() in known)
    hint = f"one of the files in it: {', '.join(files[:5])}" if files else "a file"
    return DataError(f"{path}: this is a folder; give {hint}")


def _near(path: Path) -> str:
    """Return a hint at a similarly named file next to `path` or among the shipped data sets."""
    if not path.parent.is_dir():
        return f" and no folder {path.parent}"
    beside = [each.name for each in path.parent.iterdir()]
    return did_you_mean(path.name, beside) or did_you_mean(path.stem, shipped_names())
