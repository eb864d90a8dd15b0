"""Resolves the `dataset` setting to a file, token shards or a data set on the Hub."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from pathlib import Path

from hearth.base.errors import DataError, did_you_mean
from hearth.base.files import path_fault
from hearth.base.text import cut, listed
from hearth.data.findings import SHOWN
from hearth.data.text_files import GZIP, has_content

SHIPPED = Path(__file__).resolve().parents[2] / "datasets"
_TEXT_SUFFIXES = (".jsonl", ".ndjson", ".json", ".txt", ".csv", ".tsv")
SUFFIXES = (*_TEXT_SUFFIXES, ".parquet", *(suffix + GZIP for suffix in _TEXT_SUFFIXES))
SHARD_SUFFIXES = (".bin", ".npy")
# These cannot be read but surely mean files: no Hub data set has such a suffix.
_OTHER_SUFFIXES = (".gz", ".zip", ".xz", ".bz2", ".zst", ".md", ".xlsx", ".xls", ".arrow")
_FILE_SUFFIXES = (*SUFFIXES, *SHARD_SUFFIXES, *_OTHER_SUFFIXES)
_KNOWN = ", ".join((*_TEXT_SUFFIXES, ".parquet", *SHARD_SUFFIXES))
_NO_DATA = re.compile(r"(readme|license|licence|citation|dataset_infos?)\b.*|.*\.md", re.IGNORECASE)
"""Names of files that come with the data in a folder and hold none."""
_OTHER_SPLIT = re.compile(r"(?<![a-z])(test|testing|valid|validation|val|dev|eval)(?![a-z])")
_HUB_NAME = re.compile(r"((?:[\w.-]+/)?[\w.-]+)(?::([\w.-]+))?")


@dataclass(frozen=True)
class LocalFile:
    """A data file and its `name` in messages."""

    path: Path
    name: str


@dataclass(frozen=True)
class LocalFiles:
    """Several data files that are one data set, in the order of their names.

    `name` is the folder or pattern as typed.
    """

    files: tuple[LocalFile, ...]
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


def suffix_of(path: Path) -> str:
    """Return the suffix of a file that decides its format, in lower case, such as `.jsonl.gz`."""
    last = path.suffix.lower()
    return path.with_suffix("").suffix.lower() + last if last == GZIP else last


def locate(
    dataset: str | Path, setting: str = "dataset"
) -> LocalFile | LocalFiles | ShardFiles | HubDataset:
    """Resolve `dataset`: a shipped data set, files, token shards, or `name[:config]` on the Hub.

    An existing file or folder, a name with a data file's suffix, or a name written as a path is
    local; so is a pattern such as `data/*_train_*.bin`. A folder and a pattern are all their files.

    Raises `DataError`, which may name the `setting`, if a file is missing or unusable, or if the
    name is not valid.
    """
    text = str(dataset)
    if fault := path_fault(text):
        raise DataError(f"{setting}: {cut(repr(text))} can be neither a file nor a name: {fault}")
    if text in shipped_names():
        return LocalFile(SHIPPED / f"{text}.jsonl", f"{text}.jsonl")
    path = Path(text).expanduser()
    if glob.has_magic(text) and not path.exists():
        return _matching(path, text)
    if path.is_dir():
        return _within(path, text)
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
    hub_name = _HUB_NAME.fullmatch(text)
    if not hub_name:
        raise DataError(
            f"{setting}: {cut(repr(text))} is neither a file nor a Hub name such as owner/name or "
            "owner/name:config; check the spelling"
        )
    if near := did_you_mean(text, shipped_names()):
        raise DataError(f"dataset: there is no data set '{text}'{near}")
    return HubDataset(*hub_name.groups())


def shard_files(setting: str, value: str) -> ShardFiles:
    """Return the token shards that the setting named `setting` gives by its `value`.

    Raises `DataError` if they are missing or something else.
    """
    found = locate(value, setting)
    if not isinstance(found, ShardFiles):
        raise DataError(
            f"{setting}: '{value}' is no token shard; give files that end in "
            f"{' or '.join(SHARD_SUFFIXES)}, by a name or a pattern such as 'data/*_val_*.bin'"
        )
    return found


def _matching(pattern: Path, name: str) -> LocalFiles | ShardFiles:
    """Return the files that match `pattern`, in the order of their names."""
    paths = [Path(each) for each in sorted(glob.glob(str(pattern), recursive=True))]
    files = [path for path in paths if path.is_file()]
    if not files:
        folder = pattern.parent
        beside = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
        there = f"{folder} has {listed(beside)}" if beside else f"{folder} is empty or missing"
        raise DataError(f"{pattern}: no file matches this pattern; {there}")
    shards = [path for path in files if path.suffix.lower() in SHARD_SUFFIXES]
    if len(shards) == len(files):
        return ShardFiles(tuple(files), name)
    unread = [path.name for path in files if suffix_of(path) not in SUFFIXES]
    if unread:
        also = "token shards and other files: " if shards else ""
        raise DataError(
            f"{pattern}: it matches {also}{listed(unread)}; narrow the pattern to data files of "
            f"one kind ({_KNOWN})"
        )
    return _all_checked(files, name)


def _within(folder: Path, name: str) -> LocalFiles:
    """Return the data files in a folder and the folders in it, in the order of their names.

    As in the datasets library, hidden files and folders are left out.
    """
    below = [path.relative_to(folder) for path in folder.rglob("*")]
    files = [
        folder / path
        for path in sorted(below)
        if not any(part.startswith((".", "__")) for part in path.parts)
        and not _NO_DATA.fullmatch(path.name)
        and not (folder / path).is_dir()
    ]
    others = [path.name for path in files if suffix_of(path) not in SUFFIXES]
    if files and all(path.suffix.lower() in SHARD_SUFFIXES for path in files):
        raise DataError(
            f"{folder}: this folder has token shards ({listed(others)}); give them by a pattern "
            f"such as '{folder}/*_train_*{files[0].suffix}'"
        )
    if others:
        raise DataError(
            f"{folder}: in this folder {listed(others)} cannot be read; move what is no data "
            f"elsewhere, or give the data files by a pattern such as '{folder}/*.jsonl'"
        )
    if not files:
        raise DataError(f"{folder}: this folder has no data files ({_KNOWN}); check the path")
    held_out = [path.name for path in files if _OTHER_SPLIT.search(path.name.lower())]
    if held_out and len(held_out) < len(files):
        raise DataError(
            f"{folder}: this folder has files of several splits, and {listed(held_out)} would be "
            f"trained on, too; give those to train on by a pattern such as '{folder}/train*'"
        )
    return _all_checked(files, name)


def _all_checked(paths: list[Path], name: str) -> LocalFiles:
    """Return these files as one data set. Raises `DataError` with the problems of all."""
    problems: list[str] = []
    for path in paths:
        try:
            _checked(path)
        except DataError as error:
            problems += error.findings
    if problems:
        more = len(problems) - SHOWN
        rest = [f"{name}: and {more} more file{'s' * (more > 1)} with problems"] if more > 0 else []
        raise DataError(*problems[:SHOWN], *rest)
    return LocalFiles(tuple(LocalFile(path, str(path)) for path in paths), name)


def _checked(path: Path) -> Path:
    """Return `path` after checking that it is readable, not empty and of a supported format."""
    if path.is_symlink() and not path.exists():
        raise DataError(
            f"{path}: this link leads to {path.readlink()}, which is not there; bring that file "
            "back, or give another"
        )
    if not path.exists():
        raise DataError(
            f"{path}: there is no such file or folder on this computer{_near(path)}; check the path"
        )
    suffix = suffix_of(path)
    if suffix in SHARD_SUFFIXES:
        return path  # its reader knows more
    if suffix not in SUFFIXES:
        ending = f"'{suffix}' files are" if suffix else "a file without an ending is"
        packed = (".zip", ".xz", ".bz2", ".zst", GZIP)
        way_out = "unpack it first" if suffix.endswith(packed) else f"give one of {_KNOWN}"
        raise DataError(f"{path}: {ending} not read; {way_out}")
    if not has_content(path):
        raise DataError(f"{path}: this file is empty; there is nothing to train on")
    return path


def _near(path: Path) -> str:
    """Return a hint at a similarly named file next to `path` or among the shipped data sets."""
    if not path.parent.is_dir():
        return f" and no folder {path.parent}"
    beside = [each.name for each in path.parent.iterdir()]
    return did_you_mean(path.name, beside) or did_you_mean(path.stem, shipped_names())
