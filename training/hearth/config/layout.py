"""Paths of a run's files: in a node's workspace, or in one folder when run by hand."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hearth.base.files import sha256_of
from hearth.base.places import HUB_ROWS, user_cache
from hearth.config import Run
from hearth.config.adapter import StartAdapter
from hearth.config.shards import Shard

_NOT_IN_A_NAME = r"[^\w.-]+"


@dataclass(frozen=True)
class Layout:
    """Folders of a run. `results` holds one folder per run, `checkpoints` likewise."""

    results: Path
    checkpoints: Path
    data: Path
    models: Path
    in_workspace: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Layout:
        """Return the layout of the workspace in HEARTH_WORKSPACE, or the one by hand.

        By hand, runs are in ./runs, models and tokenised data in the user's cache.
        HEARTH_MODELS names another model cache in both cases.
        """
        if workspace := environment.get("HEARTH_WORKSPACE"):
            root = Path(workspace).expanduser()
            models = root / "models"
            folders = (root / "results", root / "checkpoints", root / "data")
        else:
            cache = user_cache(environment)
            models = cache / "models"
            folders = (Path("runs").resolve(), Path("runs").resolve(), cache / "data")
        if other := environment.get("HEARTH_MODELS"):
            models = Path(other).expanduser()
        return cls(*folders, models=models, in_workspace=bool(workspace))

    def run_dir(self, run: str) -> Path:
        """Return the folder of a run: run.yml, metrics.jsonl, adapter/ or model/."""
        return self.results / run

    def checkpoint_dir(self, run: str) -> Path:
        """Return the folder that holds this node's checkpoints of a run."""
        return self.checkpoints / run if self.in_workspace else self.run_dir(run) / "checkpoints"

    def checkpoints_of(self, folder: Path, run: str) -> Path:
        """Return the folder of a run's checkpoints on this computer: beside its files, if there."""
        beside = folder / "checkpoints"
        return beside if beside.is_dir() else self.checkpoint_dir(run)

    def adapter(self, start: StartAdapter) -> list[Path]:
        """Return the possible paths of the weights of an adapter that a run begins with."""
        staged = [self.data / staged_adapter(start)] if self.in_workspace else []
        return [*staged, Path(start.path)]

    @property
    def speeds(self) -> Path:
        """The folder of the measurements of this node's ranks."""
        return self.data / "speeds"

    @property
    def unsloth(self) -> Path:
        """The folder of the code that Unsloth generates."""
        return self.data / "unsloth"

    @property
    def compiled(self) -> Path:
        """The folder of what torch.compile makes."""
        return self.data / "compiled"

    @property
    def tokens(self) -> Path:
        """The folder of tokenised data."""
        return self.data / "tokens"

    def datasets(self, run: Run) -> dict[str, str | Path]:
        """Return the path or name of each data set of `run` on this machine, by name.

        In a workspace a local file is stored under its checksum and name. A data set of the Hub is
        the file of its saved rows, if there is one; any other has the same name everywhere. Those
        with files of their own are left out: `held_shards` finds them.
        """
        if run.settings.streaming:
            return {name: name for name in run.data_checksums}
        several = {shard.dataset for shard in run.shards}
        return {
            name: self._place(name, sha256)
            for name, sha256 in run.data_checksums.items()
            if name not in several
        }

    def _place(self, dataset: str, sha256: str | None) -> str | Path:
        """Return the path or name of one data set, which has a checksum if it is a local file."""
        if self.in_workspace and sha256:
            return self.data / staged_name(sha256, dataset)
        if self.in_workspace and (kept := self.kept(dataset)).is_file():
            return kept
        return dataset

    def shard(self, shard: Shard) -> list[Path]:
        """Return the possible paths of a shard of a run on this machine.

        A node of the run may have it where the requesting computer has it: on a folder that both
        see, or because both are one computer. Then it is used there, not copied.
        """
        staged = [self.data / staged_of(shard)] if self.in_workspace else []
        return [*staged, Path(shard.path)]

    def kept(self, dataset: str) -> Path:
        """Return the file that holds the rows of a Hub data set, to be sent to other nodes."""
        return self.data / HUB_ROWS / f"{re.sub(_NOT_IN_A_NAME, '--', dataset)}.parquet"


def staged_name(sha256: str, dataset: str) -> str:
    """Return the name of a local data file in a node's workspace."""
    return f"{sha256[:12]}-{Path(dataset).name}"


def staged_of(shard: Shard) -> str:
    """Return the name of a shard in a node's workspace."""
    return staged_name(shard.sha256, shard.path)


def staged_adapter(start: StartAdapter) -> str:
    """Return the name of an adapter's weights in a node's workspace."""
    return staged_name(start.sha256, start.path)


def held_adapter(run: Run, layout: Layout) -> Path | None:
    """Return the weights of the adapter that `run` begins with; None without any on this node."""
    if run.start is None:
        return None
    places = (path for path in layout.adapter(run.start) if _size(path) == run.start.size)
    return next((path for path in places if _sha256(path) == run.start.sha256), None)


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
    from hearth.data.shards.files import known  # with NumPy, which most runs need not load yet

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
