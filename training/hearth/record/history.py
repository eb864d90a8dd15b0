"""The record of a run, `metrics.jsonl`: what a run that goes on keeps of it, and its copies.

Rank 0 writes it. The other nodes get what is new in it with every checkpoint, so that it moves
along when the run goes on with another rank 0, or when that one's disk is gone.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hearth.base.files import write_whole
from hearth.ranks.world import World

METRICS = "metrics.jsonl"


def records_in(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each whole line and what it says, up to one that a crash cut short."""
    for line in text.splitlines():
        try:
            yield line, json.loads(line)
        except ValueError:
            return


def restore(metrics: Path, kept: Path, step: int) -> None:
    """Take the copy `kept` with the checkpoint after `step`, if the own record ends before it."""
    own = records_in(metrics.read_text(encoding="utf-8")) if metrics.exists() else ()
    reached = any(record["kind"] == "step" and record["step"] == step for _, record in own)
    if not reached and kept.exists():
        shutil.copyfile(kept, metrics)


def forget_after(metrics: Path, step: int, unjudged: bool = False) -> None:
    """Drop from `metrics` what a run that goes on after `step` steps will write again.

    `unjudged`: that the run still owes the evaluation after that step, whatever came of it before.
    """
    if not metrics.exists():
        return
    kept = []
    # A run that begins anew has no history.
    for line, record in records_in(metrics.read_text(encoding="utf-8")) if step else ():
        over = record["kind"] == "end" or record.get("when") == "after"
        owed = unjudged and record["kind"] == "evaluate" and record["step"] == step
        if over or owed or record.get("step", 0) > step:
            continue
        kept.append(line + "\n")
    write_whole(metrics, "".join(kept))


class Copies:
    """The copies of rank 0's record on the other nodes of a launch."""

    def __init__(self, metrics: Path, world: World) -> None:
        self._metrics, self._world = metrics, world
        self._given = 0

    def update(self) -> None:
        """Give every node what rank 0 has recorded since the last time; all ranks take part."""
        news = None
        if self._world.leads:
            with self._metrics.open("rb") as file:
                file.seek(self._given)
                news = file.read()
        news = self._world.from_leader(news) or b""
        if self._world.local_rank == 0 and not self._world.leads:
            with self._metrics.open("ab") as file:
                file.truncate(self._given)  # What an earlier launch had there.
                file.write(news)
                file.flush()
                os.fsync(file.fileno())
        self._given += len(news)
