"""Checkpoints, metrics and trained weights of a run, on every node."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hearth.base.files import replaced_folder
from hearth.config import Run
from hearth.config.layout import Layout
from hearth.model.backend import TrainableModel
from hearth.ranks.world import World
from hearth.record import checkpoint
from hearth.record.checkpoint import Checkpoint
from hearth.record.history import METRICS, Copies, restore
from hearth.trainer.telemetry import Telemetry

_STATE = "state.pt"

BEST = "best"
"""Folder of the weights with the lowest held-out loss, in a run's folder and a checkpoint's."""


class Checkpointer:
    """Saves and restores one run; all ranks call it, the first rank of each node writes."""

    def __init__(self, run: Run, layout: Layout, world: World) -> None:
        self._run, self._world = run, world
        self._folder = layout.run_dir(run.name)
        self._checkpoints = layout.checkpoint_dir(run.name)
        self._copies = Copies(self._folder / METRICS, world)
        self._last_at = time.monotonic()

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint of this run on any node, after copying it to all nodes."""
        return checkpoint.share_newest(
            self._checkpoints, self._run.created, self._world, warn=print
        )

    def load(self, found: Checkpoint, model: TrainableModel, changing: Mapping[str, Any]) -> None:
        """Restore the model and the training state `changing` from the checkpoint `found`.

        The run's metrics and its best adapter are restored with them.
        """
        _load_state(found.path, model, changing)
        if self._world.local_rank != 0:
            return
        restore(self._folder / METRICS, found.path / METRICS, found.step)
        if (found.path / BEST).exists():
            with replaced_folder(self._folder / BEST) as folder:
                shutil.copytree(found.path / BEST, folder, dirs_exist_ok=True)

    def overdue(self) -> bool:
        """Return whether `checkpoint_minutes` have passed since the last one, by rank 0's clock."""
        most = self._run.settings.checkpoint_minutes * 60
        return bool(self._world.leads and most and time.monotonic() - self._last_at > most)

    def keep(
        self,
        step: int,
        facts: Mapping[str, Any],
        model: TrainableModel,
        changing: Mapping[str, Any],
        telemetry: Telemetry,
    ) -> None:
        """Write a checkpoint after `step` on every node; `facts` are recorded with it."""
        started = time.perf_counter()
        telemetry.sync()
        self._copies.update()

        def write(folder: Path) -> None:
            model.save(folder / model.learned, self._run.source.id)
            # Open the file here: torch's own writer hides a full disk behind a failed assertion.
            with (folder / _STATE).open("wb") as file:
                torch.save({name: part.state_dict() for name, part in changing.items()}, file)
            shutil.copyfile(self._folder / METRICS, folder / METRICS)
            if facts["best"] is not None:
                shutil.copytree(self._folder / BEST, folder / BEST)

        path: Path | None = None
        if self._world.local_rank == 0:
            path = checkpoint.save(
                self._checkpoints,
                step,
                facts={"created": self._run.created, **facts},
                keep=self._run.settings.checkpoint_keep,
                write=write,
            )
        self._last_at = time.monotonic()
        telemetry.record(
            "checkpoint",
            step=step,
            path=str(path),
            seconds=round(time.perf_counter() - started, 3),
        )

    def save(self, model: TrainableModel, name: str) -> Path:
        """Write the weights trained so far to the folder `name` of the run, and return its path."""
        folder = self._folder / name
        if self._world.local_rank == 0:
            with replaced_folder(folder) as new:
                model.save(new, self._run.source.id)
        return folder


def _load_state(folder: Path, model: TrainableModel, parts: Mapping[str, Any]) -> None:
    """Restore the model and the training state `parts` from the checkpoint in `folder`.

    Raises `CheckpointError` if the checkpoint belongs to another model.
    """
    model.restore(folder / model.learned)
    saved = torch.load(folder / _STATE, map_location="cpu", weights_only=True)
    for name, part in parts.items():
        if name in saved:  # a checkpoint of a single rank has no outer momentum
            part.load_state_dict(saved[name])
    optimizer, schedule = parts["optimizer"], parts["schedule"]
    # If the run has been given more steps, the rate follows the new schedule from here on.
    for group, base, curve in zip(
        optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
    ):
        group["lr"] = base * curve(schedule.last_epoch)
