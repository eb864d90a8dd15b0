"""Checkpoints, metrics and trained weights of a run, on every node."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.base.files import replaced_folder
from hearth.record.checkpoint import Checkpoint, save, share_newest
from hearth.record.events import CheckpointEvent
from hearth.record.folders import broadcast_folder, store_pieces
from hearth.record.history import RECORD, Copies, restore
from hearth.record.lines import METRICS
from hearth.trainer.components import Learning, RankContext
from hearth.trainer.telemetry import Telemetry

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


def newest_checkpoint(context: RankContext, inputs: Mapping[str, str]) -> Checkpoint | None:
    """Return the newest checkpoint of the run on any node, after copying it to all nodes.

    All members of the group take part. Raises `HearthError`, on all of them, if it comes from
    other `inputs`: they agreed on data and model, and the checkpoint is the same everywhere.
    """
    run = context.run
    found = share_newest(context.checkpoints, run.created, context.world, warn=print)
    findings = [
        f"{name}: run '{run.name}' started with another {what} (fingerprint "
        f"{found.facts.get(name, 'not recorded')}, now {inputs[name]}); restore the "
        f"{what} that it started with, or start a new run"
        for name, what in (("data", "data set"), ("model", "model"))
        if found and found.facts.get(name) != inputs[name]
    ]
    if findings:
        raise HearthError(*findings)
    return found


class Checkpointer:
    """Saves and restores one run; all ranks call it, and those that keep files write.

    Attributes:
        newest_step: the step of the newest checkpoint that this process wrote; -1 before.
    """

    def __init__(self, context: RankContext, learning: Learning, telemetry: Telemetry) -> None:
        self._context, self._state, self._telemetry = context, learning.state, telemetry
        self._world, self._disk, self._folder = context.world, context.disk, context.folder
        self._copies = Copies(self._folder / METRICS, self._world)
        self._learned = learning.model.learned
        written = sum(each.numel() * each.element_size() for each in learning.parameters)
        self._allowed = _LATENCY + _BYTES_A_BYTE * written / _SLOWEST
        self._last_at = time.monotonic()
        self.newest_step = -1

    def load(self, found: Checkpoint) -> None:
        """Restore the training from the checkpoint `found`, its metrics and best weights too."""
        self._state.load(found.path)
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
        most = self._context.settings.checkpoint_minutes * 60
        return bool(self._world.leads and most and time.monotonic() - self._last_at > most)

    def keep(self, step: int, facts: Mapping[str, Any]) -> bool:
        """Write a checkpoint after `step` on every node; `facts` are recorded with it.

        Where every node keeps the whole record and the whole state, the ranks need not communicate
        for it. Return whether this rank's node has it, if it is to.
        """
        self._context.work.begin("checkpoint", self._allowed)
        started, run = time.perf_counter(), self._context.run
        self._telemetry.sync()
        if not self._world.control:
            self._copies.update(self._disk)
        write_state = self._state.writer()

        def write(folder: Path) -> None:
            write_state(folder, run.source.id)
            if facts["best"] is not None:
                shutil.copytree(self._folder / BEST, folder / BEST)

        path: Path | None = None
        self._last_at = time.monotonic()
        # The record and the best weights are part of it.
        if self._disk.fails(RECORD) or self._disk.fails(BEST):
            return False
        with self._disk.spared(_CHECKPOINT):
            if self._world.keeps:
                path = save(
                    self._context.checkpoints,
                    step,
                    facts={"created": run.created, **facts},
                    keep=run.settings.checkpoint_keep,
                    write=write,
                    metrics=self._folder / METRICS,
                )
        if self._disk.fails(_CHECKPOINT):
            return False
        self.newest_step = step
        seconds = round(time.perf_counter() - started, 3)
        self._telemetry.record(CheckpointEvent(step=step, path=str(path), seconds=seconds))
        return True

    def keep_best(self) -> None:
        """Save the current weights as the best, by itself."""
        self._context.work.begin("best weights", self._allowed)
        self._save(BEST)

    def save_learned(self) -> dict[str, str]:
        """Save the trained weights, by itself; return their folder by its kind."""
        self._context.work.begin("trained weights", self._allowed)
        return {self._learned: str(self._save(self._learned))}

    def _save(self, name: str) -> Path:
        """Write the weights trained so far to the folder `name` of the run, and return its path."""
        folder, write = self._folder / name, self._state.weights_writer()
        if self._world.keeps:
            with self._disk.spared(name), replaced_folder(folder) as new:
                write(new, self._context.run.source.id)
        return folder
