"""The result of a run on this computer: its folder, trained weights and recorded base model."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hearth.base.errors import ModelError
from hearth.config import Run
from hearth.record.checkpoint import newest
from hearth.record.story import read_story

_DIGITS = 16
"""Number of digits of a fingerprint that a run records."""

_ATTEMPTS = 5
"""Number of checkpoints that may be removed before one is linked."""

_READING = ".reading-"
_NOBODY_READS = 24 * 3600.0
"""Seconds after which links belong to a reader that was killed."""


@dataclass(frozen=True)
class Result:
    """The trained weights of a run: an adapter, or a whole model, in `folder`.

    `step` is that of the checkpoint that holds them, None for the final or the best weights.
    """

    kind: Literal["adapter", "model"]
    folder: Path
    step: int | None = None

    def remark(self, run: str) -> str | None:
        """Return the remark on weights of an unfinished `run`; None on those of a finished one."""
        if self.step is None:
            return None
        return f"{run} has not ended: this is its checkpoint after step {self.step}"


def find_result(
    folder: Path, run: Run, checkpoints: Path, warn: Callable[[str], None], best: bool = False
) -> Result:
    """Return the trained weights of `run` in its `folder`, with `best` those of the lowest loss.

    Before the run has ended, also if it was resumed, they are those of its newest complete
    checkpoint in `checkpoints`; damaged ones are reported to `warn` and skipped.

    Raises `ModelError` if there are none yet.
    """
    kind: Literal["adapter", "model"] = "adapter" if run.settings.lora else "model"
    mark = "adapter_config.json" if run.settings.lora else "config.json"
    final = folder / ("best" if best else kind)
    there = (final / mark).is_file()
    if there and (best or not _goes_on(folder)):
        return Result(kind, final)
    if best:
        raise ModelError(
            f"{final}: there is no best {kind}; only a run with eval_every keeps one, after its "
            "first evaluation"
        )
    held = newest(checkpoints, warn, run.created)
    if held and (held.path / kind / mark).is_file():
        return Result(kind, held.path / kind, held.step)
    if there:
        return Result(kind, final)
    raise ModelError(
        f"{final}: there is no {kind}, and no checkpoint in {checkpoints}: the run has not come so "
        f"far, or was trained elsewhere. Finish it with resume={folder.name}, or bring its files "
        f"here with `hearth attach {folder.name}`"
    )


@contextmanager
def kept_result(find: Callable[[], Result]) -> Iterator[Result]:
    """Give the result that `find` returns, whose files stay until the block ends.

    A run under way removes its old checkpoints: a checkpoint is linked beside them meanwhile, or
    its successor, if it is gone before that.

    Raises `ModelError` as `find` does, or if no checkpoint stays long enough.
    """
    result = find()
    if result.step is None:
        yield result
        return
    checkpoints = result.folder.parent.parent
    for left in checkpoints.glob(f"{_READING}*"):
        if time.time() - left.stat().st_mtime > _NOBODY_READS:
            shutil.rmtree(left, ignore_errors=True)  # another reader may remove it, too
    with TemporaryDirectory(prefix=_READING, dir=checkpoints) as folder:
        for attempt in range(_ATTEMPTS):
            place = Path(folder) / str(attempt)
            try:
                shutil.copytree(result.folder, place, copy_function=os.link)
            except (FileNotFoundError, shutil.Error):
                result = find()
            else:
                yield replace(result, folder=place)
                return
        raise ModelError(
            f"{result.folder}: the run replaces its checkpoints faster than they can be read; try "
            "again, or wait until it has ended"
        )


def _goes_on(folder: Path) -> bool:
    """Return whether the run in `folder` has begun, or was resumed, and has not ended."""
    story = read_story(folder, skim=True)
    return bool(story.launches) and not story.ended


def other_base(folder: Path, fingerprint: str) -> str | None:
    """Compare a model's `fingerprint` with the one that the run in `folder` recorded of its base.

    Return the recorded one if they differ, None if they agree or nothing was recorded.
    """
    recorded = read_story(folder, skim=True).facts.model
    return recorded if recorded and not fingerprint.startswith(recorded[:_DIGITS]) else None
