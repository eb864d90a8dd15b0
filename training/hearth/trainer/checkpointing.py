"""Checkpoints, metrics and trained weights of a run, on every node."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from hearth.base.files import replaced_folder
from hearth.config import Run
from hearth.config.layout import Layout
from hearth.ranks.world import World
from hearth.record import checkpoint
from hearth.record.checkpoint import Checkpoint
from hearth.record.events import CheckpointEvent
from hearth.record.folders import broadcast_folder, store_pieces
from hearth.record.history import RECORD, Copies, restore
from hearth.record.lines import METRICS
from hearth.record.own_disk import OwnDisk
from hearth.trainer.telemetry import Telemetry
from hearth.trainer.training_state import TrainingState

_LATENCY = 120.0
"""Seconds for a checkpoint of any size: a disk that sleeps, or one that others use."""

_BYTES_A_BYTE = 10
"""Bytes read, hashed and written for each byte of trained weights: with the optimizer's state and
the best weights a checkpoint has up to 5, and all is read again for the checksums."""

_SLOWEST = 5e6
"""Bytes a second below which a disk counts as hanging."""

_CHECKPOINT = "the checkpoint"

BEST = "best"
"""Folder of the weights with the lowest held-out loss, in a run's folder and a checkpoint's."""


class Checkpointer:
    """Saves and restores one run; all ranks call it; who `keeps` writes.

    `disk` says whether a write may fail.

    Attributes:
        newest_step: the step of the newest checkpoint that this process wrote; -1 before.
    """

    def __init__(self, run: Run, layout: Layout, world: World, disk: OwnDisk) -> None:
        self._disk = disk
        self._run, self._world = run, world
        self._folder = layout.run_dir(run.name)
        self._checkpoints = layout.checkpoint_dir(run.name)
        self._copies = Copies(self._folder / METRICS, world)
        self._last_at = time.monotonic()
        self.newest_step = -1

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint of this run on any node, after copying it to all nodes."""
        return checkpoint.share_newest(
            self._checkpoints, self._run.created, self._world, warn=print
        )

    def load(self, found: Checkpoint, state: TrainingState) -> None:
        """Restore the training `state` from the checkpoint `found`.

        The run's metrics and its best adapter are restored with it.
        """
        state.load(found.path)
        if not self._world.keeps:
            return
        restore(self._folder / METRICS, found.path / METRICS, found.step, found.recorded)
        if (found.path / BEST).exists():
            with replaced_folder(self._folder / BEST) as folder:
                shutil.copytree(found.path / BEST, folder, dirs_exist_ok=True)

    def share_best(self, source: int, lacks: bool) -> None:
        """Send the best weights of rank `source` to the nodes that have others, or none.

        All members of the group take part; `lacks`: whether this rank's node is one of those.
        """
        place = self._folder / BEST
        pieces = broadcast_folder(place, source, self._world)
        if lacks and self._world.keeps:
            with self._disk.spared(BEST), replaced_folder(place) as folder:
                store_pieces(folder, pieces)
        deque(pieces, maxlen=0)  # take part in the broadcast, and discard what is not written

    def overdue(self) -> bool:
        """Return whether `checkpoint_minutes` have passed on the leader since the last one."""
        most = self._run.settings.checkpoint_minutes * 60
        return bool(self._world.leads and most and time.monotonic() - self._last_at > most)

    def allowed_seconds(self, learned: Sequence[torch.nn.Parameter]) -> float:
        """Return the seconds that writing the state of `learned` may take, on a slow disk."""
        return (
            _LATENCY
            + _BYTES_A_BYTE * sum(each.numel() * each.element_size() for each in learned) / _SLOWEST
        )

    def keep(
        self,
        step: int,
        facts: Mapping[str, Any],
        state: TrainingState,
        telemetry: Telemetry,
    ) -> bool:
        """Write a checkpoint after `step` on every node; `facts` are recorded with it.

        Where every node keeps the whole record and the whole state, the ranks need not communicate
        for it. Return whether this rank's node has it, if it is to.
        """
        started = time.perf_counter()
        telemetry.sync()
        if not self._world.control:
            self._copies.update(self._disk)

        write_state = state.writer()

        def write(folder: Path) -> None:
            write_state(folder, self._run.source.id)
            if facts["best"] is not None:
                shutil.copytree(self._folder / BEST, folder / BEST)

        path: Path | None = None
        self._last_at = time.monotonic()
        # The record and the best weights are part of it.
        if self._disk.fails(RECORD) or self._disk.fails(BEST):
            return False
        with self._disk.spared(_CHECKPOINT):
            if self._world.keeps:
                path = checkpoint.save(
                    self._checkpoints,
                    step,
                    facts={"created": self._run.created, **facts},
                    keep=self._run.settings.checkpoint_keep,
                    write=write,
                    metrics=self._folder / METRICS,
                )
        if self._disk.fails(_CHECKPOINT):
            return False
        self.newest_step = step
        seconds = round(time.perf_counter() - started, 3)
        telemetry.record(CheckpointEvent(step=step, path=str(path), seconds=seconds))
        return True

    def save(self, state: TrainingState, name: str) -> Path:
        """Write the weights trained so far to the folder `name` of the run, and return its path."""
        folder, write = self._folder / name, state.weights_writer()
        if self._world.keeps:
            with self._disk.spared(name), replaced_folder(folder) as new:
                write(new, self._run.source.id)
        return folder
