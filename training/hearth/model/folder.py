"""Required contents of a model folder, and the checksums that detect damage."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter

from hearth.base.errors import ModelError
from hearth.base.files import read_object, sha256_of, write_whole
from hearth.base.places import MANIFEST
from hearth.base.text import byte_count
from hearth.config.declared import CONFIG, INDEX, TOKENIZER_CONFIG, problems
from hearth.model import code

# The files of a model; pickled weights could run code and are not read.
_WEIGHTS = ("*.safetensors",)
_OTHERS = ("*.json", "*.jinja", "merges.txt", "vocab.txt", "tokenizer.model")
_DECLARED = (CONFIG, TOKENIZER_CONFIG, INDEX)
_TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))


class Damaged(Exception):
    """A file of a model folder is missing or has changed; the text names it."""


@dataclass(frozen=True)
class FileRecord:
    """A file's checksum, with its size in bytes and modification time in ns at that moment."""

    sha256: str
    size: int
    mtime_ns: int

    def untouched(self, path: Path) -> bool:
        """Return whether the file's size and modification time are unchanged."""
        status = path.stat()
        return (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)


@dataclass(frozen=True)
class Manifest:
    """Origin and files of a model folder.

    `absent` are weights that are not here: a node of a pipeline needs those of its layers only.
    """

    id: str
    origin: str
    revision: str | None
    files: dict[str, FileRecord]
    absent: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """A checksum of names and contents; equal on nodes that hold the same model."""
        parts = [[name, record.sha256] for name, record in sorted(self.files.items())]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Write this manifest to `path` atomically."""
        write_whole(path, json.dumps(asdict(self), indent=1) + "\n")


def wanted(weights: bool) -> tuple[str, ...]:
    """Return the patterns of a model's files, with or without its weights."""
    return (*_WEIGHTS, *_OTHERS) if weights else _OTHERS


def read_manifest(path: Path) -> Manifest | None:
    """Return the manifest at `path`, or None if it is missing or unreadable."""
    try:
        return TypeAdapter(Manifest).validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def take_stock(
    folder: Path, id: str, origin: str, revision: str | None, weights: bool = True
) -> Manifest:
    """Return the manifest of `folder`, reading every file of the model once."""
    files = {path.name: _record(path) for path in model_files(folder, weights)}
    return Manifest(id=id, origin=origin, revision=revision, files=files)


def verify(manifest: Manifest, folder: Path) -> Manifest:
    """Compare the files of `folder` with `manifest`; return it with current modification times.

    A file whose size and time are unchanged is trusted; any other is read.

    Raises `Damaged` if a file is missing or its content differs.
    """
    files = {}
    for name, record in manifest.files.items():
        path = folder / name
        if name in manifest.absent:
            files[name] = record
            continue
        if not path.is_file():
            raise Damaged(f"{name} is gone")
        files[name] = record if record.untouched(path) else _record(path)
        if files[name].sha256 != record.sha256:
            raise Damaged(f"{name} has changed")
    return replace(manifest, files=files)


def check_folder(folder: Path, weights: bool = True, absent: Collection[str] = ()) -> None:
    """Raise `ModelError` with all problems that make `folder` unusable as a model.

    With `weights=False`, configuration and tokenizer are enough; the files `absent` may be missing.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder}: there is no such model folder; check the path")
    if unreadable := [p for p in (folder, *model_files(folder)) if not os.access(p, os.R_OK)]:
        raise ModelError(
            *(f"{path}: this user may not read it; run chmod a+rX {path}" for path in unreadable)
        )
    findings = _irregular(folder)
    if findings:
        raise ModelError(*findings)
    if not (folder / "config.json").is_file():
        findings.append(
            f"{folder}: this is an adapter, not a model; give the model that it was trained on"
            if (folder / "adapter_config.json").is_file()
            else f"{folder}: config.json is missing, so this is not a model folder; give the "
            "folder that holds config.json, *.safetensors and the tokenizer"
        )
    elif "model_type" not in (read_object(folder / "config.json") or {}):
        findings.append(f"{folder}/config.json: this is not a model's configuration; copy it again")
    declared = {name: read_object(folder / name) for name in _DECLARED}
    known = {name: content for name, content in declared.items() if content is not None}
    findings += [f"{folder}/{problem}" for problem in problems(known)]
    # A model's own code may read a tokenizer in any format.
    if not code.code_in(folder) and not any(
        all((folder / name).is_file() for name in names) for names in _TOKENIZERS
    ):
        findings.append(
            f"{folder}: the tokenizer is missing; copy tokenizer.json and tokenizer_config.json "
            "of the model into it"
        )
    if weights and not problems({INDEX: known.get(INDEX, {"weight_map": {}})}):
        findings += _weight_problems(folder, absent)
    if findings:
        raise ModelError(*findings)


def _irregular(folder: Path) -> list[str]:
    """Return a finding for each pipe or device that has the name of a model's file.

    A library that reads it would wait for ever.
    """
    names = {path for pattern in wanted(weights=True) for path in folder.glob(pattern)}
    return [
        f"{path}: this is no regular file; copy the model again"
        for path in sorted(names)
        if path.exists() and not path.is_file()
    ]


def check_replaceable(target: Path) -> None:
    """Raise `ModelError` if a fetched model would replace something that Hearth did not make.

    Hearth's manifest marks its own folders, damaged ones included; an empty folder holds nothing.
    """
    if not target.exists() or (target / MANIFEST).is_file():
        return
    if not target.is_dir() or any(target.iterdir()):
        raise ModelError(
            f"{target}: the model belongs here, but Hearth did not make what is there ({MANIFEST} "
            "is missing); move it away, or name another folder for models with HEARTH_MODELS"
        )


def check_space(folder: Path, needed: int, option: str) -> None:
    """Raise `ModelError` if the disk of `folder`, named by `option`, has fewer bytes left."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ModelError(
            f"{folder}: the model needs {byte_count(needed)} and {byte_count(free)} are free; "
            f"free some space or name another folder with {option}"
        )


def model_files(folder: Path, weights: bool = True) -> Iterator[Path]:
    """Yield the model's files, sorted by name; code files only if the model needs its own code."""
    patterns = (*wanted(weights), *(code.PATTERNS if code.code_in(folder) else ()))
    paths = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    return (path for path in sorted(paths) if path.name != MANIFEST)


def _record(path: Path) -> FileRecord:
    status = path.stat()
    return FileRecord(sha256_of(path), status.st_size, status.st_mtime_ns)


def _weight_problems(folder: Path, absent: Collection[str]) -> list[str]:
    """Return the problems with the weights, apart from the files `absent`."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set((read_object(index) or {}).get("weight_map", {}).values()))
        if not names:
            return [f"{index}: this is not an index of weights; copy it again"]
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        if any(folder.glob("*.bin")):
            return [
                f"{folder}: the weights are in pickle form (*.bin), which can run code and is "
                "not read; save the model with save_pretrained to get *.safetensors"
            ]
        return [f"{folder}: the weights are missing (*.safetensors)"]
    here = [name for name in names if name not in absent]
    return [problem for name in here if (problem := _weight_problem(folder / name))]


def _weight_problem(path: Path) -> str | None:
    """Return the problem with the safetensors file at `path`, or None if it is complete."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return f"{path}: this part of the weights is missing; copy it again"
    with path.open("rb") as file:
        if file.read(8) == b"version ":
            return f"{path}: this is a git-lfs pointer, not the weights; run git lfs pull"
    try:
        with safe_open(path, "numpy"):
            return None
    except (SafetensorError, OSError, ValueError) as error:
        return f"{path}: this is not a complete safetensors file ({error}); copy it again"
