"""The shards of a run: files of data sets that have several, named by checksum on every node."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hearth.base.files import sha256_of
from hearth.base.places import user_cache
from hearth.config.settings import Settings
from hearth.data.locate import SHARD_SUFFIXES, LocalFiles, ShardFiles, locate, shard_files


@dataclass(frozen=True)
class Shard:
    """One file of a data set that has several: a token shard, or a file of a folder or pattern.

    Attributes:
        path: absolute, on the computer where the run was requested.
        size: in bytes.
        sha256: checksum of the file.
        validation: whether it is evaluated instead of trained on.
        dataset: the data set that it is of, as the settings name it.
    """

    path: str
    size: int
    sha256: str
    validation: bool
    dataset: str = ""

    @property
    def holds_tokens(self) -> bool:
        """Whether this is a token shard."""
        return self.path.lower().endswith(SHARD_SUFFIXES)


def shards_of(settings: Settings, say: Callable[[str], None]) -> tuple[Shard, ...]:
    """Return the shards of the data sets that `settings` name on this computer.

    Raises `DataError` with the problems of all files.
    """
    located = {name: locate(name) for name in settings.data_sets}
    return tuple(
        shard
        for name, data in located.items()
        for shard in (
            _token_shards(name, data, settings.validation, say)
            if isinstance(data, ShardFiles)
            else _files(name, data)
        )
    )


def _files(name: str, data: object) -> list[Shard]:
    """Return the files of a folder or pattern, none of other data."""
    paths = [file.path for file in data.files] if isinstance(data, LocalFiles) else []
    return [
        Shard(os.path.abspath(path), path.stat().st_size, sha256_of(path), False, name)
        for path in paths
    ]


def _token_shards(
    name: str, data: ShardFiles, validation: str | None, say: Callable[[str], None]
) -> list[Shard]:
    # With NumPy, which most verbs need not load.
    from hearth.data.shards.files import examine

    held_out = shard_files("validation", validation).paths if validation else ()
    facts = examine([*data.paths, *held_out], user_cache() / "data" / "tokens", say)
    return [
        Shard(os.path.abspath(path), facts[path].state[0], facts[path].sha256, of, name)
        for paths, of in ((data.paths, False), (held_out, True))
        for path in paths
    ]


def digest_of(shards: Sequence[Shard]) -> str:
    """Return one checksum of the contents of all `shards` in their order."""
    text = "".join(f"{shard.sha256} {shard.validation}\n" for shard in shards)
    return hashlib.sha256(text.encode()).hexdigest()


def files_in_both(dataset: ShardFiles, validation: ShardFiles) -> list[Path]:
    """Return the files that would be both trained on and evaluated."""
    kept = {path.resolve() for path in validation.paths}
    return [path for path in dataset.paths if path.resolve() in kept]
