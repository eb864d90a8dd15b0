"""The record of a run, `metrics.jsonl`: writing, trimming for a resume, copies on all nodes.

Rank 0 writes it. The nodes with a folder of their own receive its new lines with every checkpoint,
so that it survives if the run is resumed with another rank 0 or if that node's disk is lost.

It only grows, or is replaced by another file: checkpoints have links to it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.base.files import open_regular, write_whole
from hearth.record.events import EndEvent, EvaluateEvent, StepEvent, event_in, parse
from hearth.record.lines import text_lines

if TYPE_CHECKING:  # with torch
    from hearth.ranks.world import World
    from hearth.record.own_disk import OwnDisk

RECORD = "the record"
"""Name of the record among the files that a rank writes."""


class RecordFile:
    """Lines that are appended to a file, each of them whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._size = 0
        self._waiting: list[str] = []
        self._replacement: str | None = None

    def replace(self, text: str) -> None:
        """Let `text` be the content, instead of all lines so far; see `flush`."""
        self._shut()
        self._replacement, self._waiting = text, []
        self.flush()

    def add(self, lines: str) -> None:
        """Append whole lines; see `flush`."""
        self._waiting.append(lines)
        self.flush()

    def flush(self) -> None:
        """Write what waits.

        Raises `OSError` if the disk does not take it: it goes on to wait, and no part is written.
        """
        if self._replacement is not None:
            write_whole(self._path, self._replacement, synced=True)
            self._replacement = None
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o666)
            self._size = os.fstat(self._descriptor).st_size
        content = "".join(self._waiting).encode()
        written = 0
        try:
            while written < len(content):
                written += os.write(self._descriptor, content[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(content)
        self._waiting = []

    def text(self) -> str:
        """Return the whole content, what waits included."""
        known = self._replacement
        if known is None:
            known = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        return known + "".join(self._waiting)

    def sync(self) -> None:
        """Write what waits, and have it on the disk. Raises `OSError`, as `flush` does."""
        self.flush()
        assert self._descriptor is not None
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Write what waits, and close the file. Raises `OSError`, as `flush` does."""
        try:
            if self._waiting or self._replacement is not None:
                self.flush()
        finally:
            self._shut()

    def _shut(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def restore(metrics: Path, kept: Path, step: int, recorded: int = -1) -> None:
    """Replace `metrics` by that of a checkpoint if `metrics` does not reach its `step`.

    The checkpoint's are the first `recorded` bytes of `kept`, all of them for -1.
    """
    own = parse(text_lines(metrics))
    reached = any(isinstance(each, StepEvent) and each.step == step for each in own)
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
    for line in text_lines(metrics) if step else ():
        if (event := event_in(line)) is None:
            continue
        over = isinstance(event, EndEvent) or event.when == "after" or event.step > step
        owed = evaluation_due and isinstance(event, EvaluateEvent) and event.step == step
        if not (over or owed):
            kept.append(line.removesuffix("\n") + "\n")
    write_whole(metrics, "".join(kept), synced=True)


def joules_so_far(records: Iterable[Path], world: World) -> float | None:
    """Return the energy that a run has used so far by the `records` of it on all nodes.

    All ranks take part; None if no record has any.
    """
    found = [
        joules
        for each in records
        for event in parse(text_lines(each))
        if isinstance(event, StepEvent | EndEvent) and (joules := event.energy_joules) is not None
    ]
    known = [each for each in world.gather(max(found, default=None)) if each is not None]
    return max(known, default=None)


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
