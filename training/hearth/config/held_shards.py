"""The shards of a run that are on this machine, by checksum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hearth.base.files import sha256_of
from hearth.config import Run
from hearth.config.layout import Layout
from hearth.config.shards import Shard


def held_shards(run: Run, layout: Layout, say: Callable[[str], None]) -> dict[Shard, Path]:
    """Return the path of each shard of `run` that is here, complete and unchanged."""
    places = {
        shard: [path for path in layout.shard(shard) if _size(path) == shard.size]
        for shard in run.shards
    }
    tokens = [path for shard, paths in places.items() if shard.holds_tokens for path in paths]
    checksums = _token_checksums(tokens, layout, say) if tokens else {}
    return {
        shard: path
        for shard, paths in places.items()
        for path in reversed(paths)  # the workspace's own copy, where there is one, wins
        if shard.sha256 == (checksums.get(path) if shard.holds_tokens else _sha256(path))
    }


def _token_checksums(
    paths: list[Path], layout: Layout, say: Callable[[str], None]
) -> dict[Path, str]:
    """Return the checksums of valid token shards, each read once and kept."""
    from hearth.data.shards.index import known  # with NumPy, which most runs need not load yet

    return {path: facts.sha256 for path, facts in known(paths, layout.tokens, say).items()}


def _sha256(path: Path) -> str | None:
    """Return the checksum of a file, None if this user may not read it."""
    try:
        return sha256_of(path)
    except OSError:
        return None


def _size(path: Path) -> int | None:
    """Return the bytes of a file; None where there is none, or none that this user may see."""
    try:
        return path.stat().st_size
    except OSError:
        return None
