"""Metrics and log of a run: metrics.jsonl, TensorBoard, Weights & Biases, standard output.

Every rank knows all that is recorded: it gets the other ranks' measurements in the step's one
exchange. Under a supervisor that forms groups in place every node keeps the whole record, else the
leader does.
The rest of Hearth reads `metrics.jsonl`: one event per line (`hearth.record.events`). What follows
the training adds scores and shared (`hearth.after`).
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from hearth.base.text import duration
from hearth.config import Run
from hearth.plan.slow_links import SlowLinks
from hearth.plan.straggler import waited_for
from hearth.record.events import EvaluateEvent, RunEvent, StepEvent
from hearth.record.history import RECORD, RecordFile, forget_after
from hearth.record.lines import METRICS
from hearth.record.own_disk import OwnDisk
from hearth.trainer.online import WeightsAndBiases

_BOARD = "TensorBoard's files"
_NO_CURVES = ("step", "steps", "at", "launch", "team")


class Telemetry:
    """The metrics writers of one run on one rank.

    `keeps`: whether this rank writes `metrics.jsonl`. TensorBoard, Weights & Biases and the log are
    the leader's, see `lead`. `disk` says whether a write may fail.
    """

    def __init__(self, run: Run, folder: Path, keeps: bool, disk: OwnDisk | None = None) -> None:
        self._folder, self._keeps = folder, keeps
        self._metrics = folder / METRICS
        self._file: RecordFile | None = None
        self._disk = disk or OwnDisk(keeps)
        self._board: SummaryWriter | None = None
        self._wandb = WeightsAndBiases(run, folder)
        self._leads = False

    def begin(self, step: int, evaluation_due: bool) -> None:
        """Open the record for what follows the first `step` steps.

        `evaluation_due`: whether the evaluation after them is still to come.
        """
        if self._keeps:
            forget_after(self._metrics, step, evaluation_due)
            self._file = RecordFile(self._metrics)
            with self._disk.spared(RECORD):
                self._file.flush()

    def take_over(self, text: str) -> None:
        """Replace the record by another node's, and continue it."""
        if self._keeps:
            self._file = self._file or RecordFile(self._metrics)
            with self._disk.spared(RECORD):
                self._file.replace(text)

    def text(self) -> str:
        """Return the record so far; empty on a rank that does not keep it."""
        return self._file.text() if self._file else ""

    def lead(self, leads: bool, step: int) -> None:
        """Write TensorBoard, W&B and the log from now on, after `step` steps, or leave it.

        Another leader's TensorBoard keeps the curves so far; W&B goes on in the same run.
        """
        if leads and not self._leads:
            self._wandb.begin()
        self._leads = leads
        if leads and not self._board:
            threading.excepthook = _report_unless_kept
            with self._disk.spared(_BOARD):
                place = str(self._folder / "tensorboard")
                self._board = SummaryWriter(place, purge_step=step + 1)
        elif not leads:
            self._wandb.leave(failed=False)
            with self._disk.spared(_BOARD):
                self._close_board()

    def record(self, event: RunEvent) -> None:
        """Write an event to metrics.jsonl, and its numbers to TensorBoard and W&B."""
        event.time = datetime.now(UTC).isoformat(timespec="milliseconds")
        if self._file:
            with self._disk.spared(RECORD):
                self._file.add(event.line)
        if isinstance(event, StepEvent | EvaluateEvent):
            numbers = dict(_numbers(event))
            self._draw(numbers, event.step)
            self._wandb.log(numbers, event.step)

    def _draw(self, numbers: Mapping[str, float], step: int) -> None:
        """Give numbers to TensorBoard, which is begun anew once a disk that was full takes them."""
        if self._leads and self._disk.fails(_BOARD) and not self._disk.fails(RECORD):
            self.lead(True, step - 1)
        board = self._board
        with self._disk.spared(_BOARD) if board else nullcontext():
            try:
                for name, number in numbers.items() if board else ():
                    board.add_scalar(name, number, step)
            except OSError:
                self._board = None
                raise

    def say(self, text: str) -> None:
        """Print a line to the log of the leader."""
        if self._leads:
            print(text, flush=True)

    def sync(self) -> None:
        """Sync the metrics to disk, so that a checkpoint never covers more steps than they do."""
        if self._file:
            with self._disk.spared(RECORD):
                self._file.sync()

    def close(self, failed: bool) -> None:
        """Flush and close all writers; tell Weights & Biases whether the run failed."""
        # A full disk has been reported already by the write that failed first.
        with suppress(OSError) if failed else nullcontext():
            try:
                if self._file:
                    with self._disk.spared(RECORD):
                        self._file.close()
                with self._disk.spared(_BOARD):
                    self._close_board()
            finally:
                self._wandb.close(failed)

    def _close_board(self) -> None:
        """Close TensorBoard."""
        board, self._board = self._board, None
        if board:
            board.close()


def _report_unless_kept(failure: threading.ExceptHookArgs) -> None:
    """Print a thread's uncaught exception unless the thread keeps it for its owner.

    TensorBoard's writer thread does: the next write raises the exception, for example of a full
    disk, and the run reports it once, in its own words.
    """
    if getattr(failure.thread, "exception", None) is not failure.exc_value:
        threading.__excepthook__(failure)


def _numbers(event: StepEvent | EvaluateEvent) -> Iterator[tuple[str, float]]:
    """Yield name and value of each curve in an event.

    A list by rank gives a curve per rank, a mapping by data set one per set. None values are left
    out.
    """
    room = "train" if isinstance(event, StepEvent) else "held_out"
    for name, value in vars(event).items():
        if name.endswith("_by_rank"):
            for rank, number in enumerate(value or ()):
                if number is not None:
                    yield f"{name.removesuffix('_by_rank')}/rank{rank}", number
        elif name.endswith("_by_set"):
            for each, number in (value or {}).items():
                yield f"held_out/{name.removesuffix('_by_set')}/{each}", number
        elif isinstance(value, int | float) and name not in _NO_CURVES:
            yield f"{room}/{name}", value


def step_line(
    record: dict[str, Any],
    nodes: Sequence[str],
    present: Collection[str] | None = None,
    stages: bool = False,
) -> str:
    """Format a step record as a log line.

    `nodes` names each rank's node; `present` are those in the group now, None for all. In a
    pipeline, whose `stages` all compute every token, the line says how busy each of them was.
    """
    by_node: dict[str, float] = {}
    tokens = record["tokens_per_second_by_rank"]
    for node, speed in zip(nodes, tokens, strict=True):
        by_node[node] = by_node.get(node, 0.0) + speed
    away = [node for node in by_node if present is not None and node not in present]
    shares = ", ".join(
        f"{node} {speed:.0f}" for node, speed in by_node.items() if speed or node not in away
    )
    if stages:
        busy = zip(nodes, record["busy_by_rank"], strict=True)
        shares = "busy: " + ", ".join(f"{node} {part:.0%}" for node, part in busy)
    left = duration(record["eta_seconds"])
    compute, wait = (record[f"{what}_seconds_by_rank"] for what in ("compute", "wait"))
    slow = waited_for(compute, tokens, nodes, wait)
    links = SlowLinks.from_record(record.get("slow_links"))
    skipped = {"as not finite": record["skipped"], "by the loss scaler": record["scaler_skipped"]}
    judged = ""
    if "reward_accuracy" in record:
        margin = record["chosen_reward"] - record["rejected_reward"]
        judged = f"accuracy {record['reward_accuracy']:.2f}  margin {margin:.3f}  "
    return (
        f"step {record['step']}/{record['steps']}  loss {record['loss']:.4f}  {judged}"
        f"{record['tokens_per_second']:.0f} tokens/s ({shares})  {left} left"
        + (f"  the others wait for {slow}" if slow else "")
        + (f"  {links.text}" if links else "")
        + (f"  without {', '.join(away)}" if away else "")
        + "".join(f"  {count} skipped {why}" for why, count in skipped.items() if count)
    )
