"""Models that are on this node: in the cache, or in a folder of the user's own.

Imports nothing of the Hub's library, which takes a third of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hearth.base.places import MANIFEST
from hearth.config.presets import ModelSource
from hearth.model.folder import (
    Damaged,
    Manifest,
    check_folder,
    model_files,
    read_manifest,
    take_stock,
    verify,
)


@dataclass(frozen=True)
class ModelFolder:
    """A model on this node.

    `revision` is the Hub's commit, or the package's name and version, or None; `fingerprint` is
    equal on nodes that hold the same model, or parts of it: `absent` are files that are not here.
    """

    path: Path
    origin: Literal["hub", "wheel", "folder"]
    revision: str | None
    fingerprint: str
    absent: tuple[str, ...] = ()

    @property
    def commit(self) -> str | None:
        """The Hub's commit, or None if the model did not come from there."""
        return self.revision if self.origin == "hub" else None


def held_model(source: ModelSource, models: Path, part: bool = False) -> ModelFolder | None:
    """Return the model of `source` if it is here, complete, and of known checksums.

    With `part` some of its weights may be missing. Nothing is fetched or written.
    """
    if source.kind == "hub":
        return cached_model(source, models / source.folder, lambda _: None, keep=False, part=part)
    path = _own(source)
    known = _known(path, stock_file(source, models))
    return known and as_folder(path, known)


def local_folder(
    source: ModelSource, weights: bool, manifest_path: Path | None = None
) -> ModelFolder:
    """Return a user's own model folder, checked; nothing is written into it.

    With a `manifest_path` its checksums are saved there, so that it need not be read again.
    """
    path = _own(source)
    check_folder(path, weights)
    known = _known(path, manifest_path) if manifest_path else None
    manifest = known or take_stock(path, str(path), "folder", None)
    if manifest_path:
        manifest.write(manifest_path)
    return as_folder(path, manifest)


def stock_file(source: ModelSource, models: Path) -> Path:
    """Return the file in the cache that keeps the checksums of a user's own folder."""
    return models / f"{source.folder}.folder.json"


def _own(source: ModelSource) -> Path:
    return Path(source.id).expanduser().resolve()


def _known(path: Path, manifest_path: Path) -> Manifest | None:
    """Return the kept manifest of the folder `path`, None if it no longer holds."""
    manifest = read_manifest(manifest_path)
    if manifest is None or manifest.id != str(path):
        return None
    if manifest.files.keys() != {file.name for file in model_files(path)}:
        return None
    try:
        return verify(manifest, path)
    except Damaged:
        return None


def cached_model(
    source: ModelSource,
    target: Path,
    say: Callable[[str], None],
    keep: bool = True,
    part: bool = False,
) -> ModelFolder | None:
    """Return the cached model, or None if it is missing, damaged or of another revision.

    With `keep` the times of its files are recorded, so that they need not be read again. With
    `part` some of its weights may be missing.
    """
    manifest = read_manifest(target / MANIFEST)
    if manifest is None or manifest.id != source.id:
        return None
    if source.revision and manifest.origin == "hub" and manifest.revision != source.revision:
        say(f"model: {source.name} is cached at another revision; fetching {source.revision}")
        return None
    if manifest.absent and not part:
        say(f"model: only some layers of {source.name} are cached; fetching all")
        return None
    try:
        current = verify(manifest, target)
        check_folder(target, source.weights, manifest.absent)
    except Damaged as damage:
        say(f"model: the cached {source.name} is damaged ({damage}); fetching it again")
        return None
    if keep and current != manifest:
        current.write(target / MANIFEST)
    return as_folder(target, current)


def as_folder(path: Path, manifest: Manifest) -> ModelFolder:
    """Return the model in `path` with this manifest."""
    return ModelFolder(
        path, manifest.origin, manifest.revision, manifest.fingerprint, manifest.absent
    )


def unfinished_of(target: Path) -> Path:
    """Return the temporary folder for the download of `target`."""
    return target.with_name(f".{target.name}.unfinished")
