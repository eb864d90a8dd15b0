"""Where the files of a run lie: in a node's workspace, or in one folder when run by hand."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hearth.config import Run

_NOT_IN_A_NAME = r"[^\w.-]+"


@dataclass(frozen=True)
class Layout:
    """Folders of a run. `results` holds one folder a run, `checkpoints` likewise."""

    results: Path
    checkpoints: Path
    data: Path
    models: Path
    in_workspace: bool

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Layout:
        """Return the layout of the workspace in HEARTH_WORKSPACE, or the one by hand.

        By hand, runs lie in ./runs, models and tokenised data in the user's cache.
        HEARTH_MODELS names another model cache in both cases.
        """
        if workspace := environment.get("HEARTH_WORKSPACE"):
            root = Path(workspace).expanduser()
            models = root / "models"
            folders = (root / "results", root / "checkpoints", root / "data")
        else:
            home = environment.get("XDG_CACHE_HOME") or "~/.cache"
            cache = Path(home).expanduser() / "hearth"
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

    @property
    def speeds(self) -> Path:
        """The folder of what was measured of this node's ranks."""
        return self.data / "speeds"

    @property
    def tokens(self) -> Path:
        """The folder of tokenised data."""
        return self.data / "tokens"

    def dataset(self, run: Run) -> str | Path:
        """Return the data set of `run` as this machine finds it.

        A local file lies in a workspace under its checksum and name. A data set of the Hub is the
        file in which its rows were kept, where they were; every other one goes by the same name
        everywhere.
        """
        if self.in_workspace and run.dataset_sha256:
            return self.data / staged_name(run.dataset_sha256, run.settings.dataset)
        if self.in_workspace and (kept := self.kept(run.settings.dataset)).is_file():
            return kept
        return run.settings.dataset

    def kept(self, dataset: str) -> Path:
        """Return where the rows of a data set of the Hub are kept, to be sent to other nodes."""
        return self.data / "hub" / f"{re.sub(_NOT_IN_A_NAME, '--', dataset)}.parquet"


def staged_name(sha256: str, dataset: str) -> str:
    """Return the name under which a local data file lies in a node's workspace."""
    return f"{sha256[:12]}-{Path(dataset).name}"
