"""The token shards of a run, by which every node knows them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hearth.base.places import user_cache
from hearth.config.settings import Settings
from hearth.data.locate import ShardFiles, locate, shard_files


@dataclass(frozen=True)
class Shard:
    """One token shard of a run.

    Attributes:
        path: absolute, on the computer where the run was requested.
        size: in bytes.
        sha256: checksum of the file.
        validation: whether it is evaluated instead of trained on.
    """

    path: str
    size: int
    sha256: str
    validation: bool


def shards_of(settings: Settings, say: Callable[[str], None]) -> tuple[Shard, ...]:
    """Return the token shards that `settings` name on this computer, () if they name other data.

    Raises `DataError` with the problems of all files.
    """
    dataset = locate(settings.dataset)
    if not isinstance(dataset, ShardFiles):
        return ()
    # With NumPy, which most verbs need not load.
    from hearth.data.shards.index import examine

    held_out = shard_files("validation", settings.validation).paths if settings.validation else ()
    facts = examine([*dataset.paths, *held_out], user_cache() / "data" / "tokens", say)
    return tuple(
        Shard(os.path.abspath(path), facts[path].state[0], facts[path].sha256, validation)
        for paths, validation in ((dataset.paths, False), (held_out, True))
        for path in paths
    )


def digest_of(shards: Sequence[Shard]) -> str:
    """Return one checksum of the contents of all `shards` in their order."""
    text = "".join(f"{shard.sha256} {shard.validation}\n" for shard in shards)
    return hashlib.sha256(text.encode()).hexdigest()


def files_in_both(dataset: ShardFiles, validation: ShardFiles) -> list[Path]:
    """Return the files that would be both trained on and evaluated."""
    kept = {path.resolve() for path in validation.paths}
    return [path for path in dataset.paths if path.resolve() in kept]
