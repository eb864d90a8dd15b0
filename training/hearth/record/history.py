"""The record of a run, `metrics.jsonl`: reading, trimming for a resume, copies on all nodes.

Rank 0 writes it. The nodes with a folder of their own receive its new lines with every checkpoint,
so that it survives if the run is resumed with another rank 0 or if that node's disk is lost.

It only grows, or is replaced by another file: checkpoints have links to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearth.base.files import open_regular, write_whole
from hearth.record.metric_line import is_sound
from hearth.record.record_file import RECORD, RecordFile

if TYPE_CHECKING:  # with torch
    from hearth.ranks.world import World
    from hearth.record.own_disk import OwnDisk

METRICS = "metrics.jsonl"


def text_of(metrics: Path) -> str:
    """Return the text of a record; bytes that are no UTF-8 are replaced. Raises `OSError`."""
    with open_regular(metrics) as file:
        return file.read().decode("utf-8", "replace")


def records_in(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line and its JSON object, stopping at a line that a crash cut short.

    Lines that no trainer can have written are skipped.
    """
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return
        if is_sound(record):
            yield line, record


def records_of(metrics: Path) -> list[dict[str, Any]]:
    """Return the lines of a record, none if there is no such file."""
    return [record for _, record in records_in(text_of(metrics))] if metrics.is_file() else []


def restore(metrics: Path, kept: Path, step: int, recorded: int = -1) -> None:
    """Replace `metrics` by that of a checkpoint if `metrics` does not reach its `step`.

    The checkpoint's are the first `recorded` bytes of `kept`, all of them for -1.
    """
    own = records_of(metrics)
    reached = any(each["kind"] == "step" and each.get("step") == step for each in own)
    if not reached and kept.exists():
        with open_regular(kept) as file:
            write_whole(metrics, file.read(recorded).decode("utf-8", "replace"), synced=True)


def forget_after(metrics: Path, step: int, evaluation_due: bool = False) -> None:
    """Drop the lines of `metrics` that a run resumed after `step` steps will write again.

    `evaluation_due`: the evaluation after that step is still due, so drop any earlier result of it.
    """
    if not metrics.exists():
        return
    kept = []
    # A run that starts from step 0 keeps no history.
    for line, record in records_in(text_of(metrics)) if step else ():
        over = record["kind"] == "end" or record.get("when") == "after"
        owed = evaluation_due and record["kind"] == "evaluate" and record.get("step") == step
        if over or owed or record.get("step", 0) > step:
            continue
        kept.append(line + "\n")
    write_whole(metrics, "".join(kept), synced=True)


def joules_so_far(records: Iterable[Path], world: World) -> float | None:
    """Return the energy that a run has used so far by the `records` of it on all nodes.

    All ranks take part; None if no record has any.
    """
    found = [_joules_in(each) for each in records if each.exists()]
    known = [each for own in world.gather(found) for each in own if each is not None]
    return max(known, default=None)


def _joules_in(metrics: Path) -> float | None:
    """Return the highest energy of a run in its record, None without any."""
    told = [record.get("energy_joules") for record in records_of(metrics)]
    return max((each for each in told if each is not None), default=None)


class Copies:
    """Copies rank 0's record to the other nodes of a launch."""

    def __init__(self, metrics: Path, world: World) -> None:
        self._metrics, self._world = metrics, world
        self._given = 0
        self._file: RecordFile | None = None

    def update(self, disk: OwnDisk) -> None:
        """Append rank 0's lines since the last call on every node; all ranks take part.

        `disk` says whether that may fail.
        """
        news = b""
        if self._world.leads:
            with self._metrics.open("rb") as file:
                file.seek(self._given)
                news = file.read()
        news = self._world.bytes_from(self._world.leader, news)
        if self._world.keeps and not self._world.leads:
            if not self._given:  # it may have lines of an earlier launch
                self._metrics.unlink(missing_ok=True)
            self._file = self._file or RecordFile(self._metrics)
            with disk.spared(RECORD):
                self._file.add(news.decode())
                self._file.sync()
        self._given += len(news)
