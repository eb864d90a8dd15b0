"""Resolves the `dataset` setting to a file or a data set on the Hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from string import whitespace

from hearth.base.errors import DataError, did_you_mean

SHIPPED = Path(__file__).resolve().parents[2] / "datasets"
SUFFIXES = (".jsonl", ".txt", ".csv", ".parquet")
# Some of these cannot be read but surely mean files: no Hub data set has such a suffix.
_FILE_SUFFIXES = (*SUFFIXES, ".json", ".tsv", ".gz", ".zip", ".xz", ".bz2", ".zst", ".md", ".xlsx")
_HUB_NAME = re.compile(r"((?:[\w.-]+/)?[\w.-]+)(?::([\w.-]+))?")


@dataclass(frozen=True)
class LocalFile:
    """A data file and its `name` in messages."""

    path: Path
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


def locate(dataset: str | Path) -> LocalFile | HubDataset:
    """Resolve `dataset`: a shipped data set, a file, or `name[:config]` on the Hub.

    An existing file, a name with a data file's suffix, or a name written as a path is a file.

    Raises `DataError` if the file is missing or unusable, or if the name is not valid.
    """
    text = str(dataset)
    if text in shipped_names():
        return LocalFile(SHIPPED / f"{text}.jsonl", f"{text}.jsonl")
    path = Path(text).expanduser()
    written_as_path = text.startswith(("/", "./", "../", "~")) or isinstance(dataset, Path)
    if (
        path.is_file()
        or path.is_symlink()
        or written_as_path
        or path.suffix.lower() in _FILE_SUFFIXES
    ):
        return LocalFile(_checked(path), text)
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
    if suffix not in SUFFIXES:
        ending = f"'{suffix}' files are" if suffix else "a file without an ending is"
        way_out = {
            ".json": "write one object a line and name it .jsonl",
            ".tsv": "name it .csv, tabs are understood",
            ".gz": "unpack it first",
            ".zip": "unpack it first",
        }.get(suffix, f"give a file that ends in {', '.join(SUFFIXES)}")
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
    files = sorted(p.name for p in path.iterdir() if p.suffix.lower() in SUFFIXES)
    hint = f"one of the files in it: {', '.join(files[:5])}" if files else "a file"
    return DataError(f"{path}: this is a folder; give {hint}")


def _near(path: Path) -> str:
    """Return a hint at a similarly named file next to `path` or among the shipped data sets."""
    if not path.parent.is_dir():
        return f" and no folder {path.parent}"
    beside = [each.name for each in path.parent.iterdir()]
    return did_you_mean(path.name, beside) or did_you_mean(path.stem, shipped_names())
