"""The token shards of a run that are on this machine, by checksum."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hearth.config import Run
from hearth.config.layout import Layout
from hearth.config.shards import Shard


def held_shards(run: Run, layout: Layout, say: Callable[[str], None]) -> dict[Shard, Path]:
    """Return the path of each token shard of `run` that is here, complete and unchanged."""
    from hearth.data.shards.index import known  # with NumPy, which most runs need not load yet

    places = {
        shard: [path for path in layout.shard(shard) if _size(path) == shard.size]
        for shard in run.shards
    }
    facts = known([path for paths in places.values() for path in paths], layout.tokens, say)
    return {
        shard: path
        for shard, paths in places.items()
        for path in reversed(paths)  # the workspace's own copy, where there is one, wins
        if path in facts and facts[path].sha256 == shard.sha256
    }


def _size(path: Path) -> int | None:
    """Return the bytes of a file; None where there is none, or none that this user may see."""
    try:
        return path.stat().st_size
    except OSError:
        return None
