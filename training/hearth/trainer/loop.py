"""The training loop: a run from its first step, or its newest checkpoint, to its end.

Everything that ranks do together is done in two parts: first all that needs the others, then what
changes this rank, by itself. So work that a lost rank interrupts can be undone, and be done again
by another group (see `in_place`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from hearth.base.errors import HearthError
from hearth.data.shown import first_examples, record_of
from hearth.data.stream import StreamedRows
from hearth.ranks.control_protocol import Disk
from hearth.record.checkpoint import Checkpoint, not_written
from hearth.record.events import EndEvent, ExampleEvent
from hearth.record.history import joules_so_far
from hearth.record.lines import METRICS
from hearth.record.own_disk import DISK_ERRORS, reason
from hearth.trainer.checkpointing import Checkpointer
from hearth.trainer.components import Learning, RankContext, RunFacts
from hearth.trainer.evaluation import Evaluator
from hearth.trainer.progress import LogWindow, Progress
from hearth.trainer.replicas import mend
from hearth.trainer.reports import Reports
from hearth.trainer.stepper import Stepper
from hearth.trainer.telemetry import Telemetry

RECORDING = 900.0
"""Timeout for beginning or ending a rank's part of the record, on a slow disk."""

STOP_FILE = "stop"
"""Stop file: if it exists in the run's folder, the run stops after the current step."""


class Trainer:
    """One rank of a run, at the step that `progress` says; see `assembly.assemble`.

    Attributes:
        kept: step, best loss and due evaluation of the newest checkpoint that this process wrote.
    """

    def __init__(
        self,
        context: RankContext,
        facts: RunFacts,
        learning: Learning,
        telemetry: Telemetry,
        reports: Reports,
        stepper: Stepper,
        evaluator: Evaluator,
        checkpointer: Checkpointer,
    ) -> None:
        self.context, self.facts, self.learning = context, facts, learning
        self.run, self.settings = context.run, context.settings
        self.world, self.work = context.world, context.work
        self.telemetry, self.reports, self.stepper = telemetry, reports, stepper
        self.evaluator, self.checkpointer = evaluator, checkpointer
        self.progress = Progress()
        self.kept: tuple[Any, ...] | None = None

    def train(self) -> str:
        """Train to the end or until a stop is requested; return `finished` or `stopped`.

        Raises `HearthError` if the run cannot continue, or ends without a single optimizer step.
        """
        with self.recording():
            self.open_record()
            outcome = self.go_on()
        assert outcome, "only a group that is formed in place can pause"
        return outcome

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Close the record and the meter at the end; name the disk if it takes no record."""
        failed = True
        try:
            yield
            failed = False
        except DISK_ERRORS as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise  # a network error, not a disk error
            what = "what the run recorded"
            raise not_written(self.context.checkpoints, what, error) from error
        finally:
            self.context.energy.close()
            try:
                self.work.begin("end of the record", RECORDING)
            finally:
                self.telemetry.close(failed)

    @property
    def step(self) -> int:
        """The number of steps done."""
        return self.progress.step

    @property
    def _has_replicas(self) -> bool:
        """Whether each rank holds the whole model."""
        return not (self.settings.parallel == "fsdp" or self.facts.placement)

    def go_on(self) -> str | None:
        """Do the rest of the run; return `finished` or `stopped`, None for a pause.

        It may be called again after a lost rank has interrupted it anywhere.
        """
        progress = self.progress
        if not progress.announced:
            self._announce()
        if not progress.step and not progress.begun:
            self._evaluate("before")
        while True:
            if progress.comparison_due:
                self._compare()
            if progress.stopping:
                break
            if progress.evaluation_due:
                self._evaluate("during")
            if progress.checkpoint_due and not self.evaluator.gives_up:
                self._checkpoint()
            if progress.step >= self.facts.steps or self.evaluator.gives_up:
                break
            paused = self._step()
            if paused and not progress.stopping:
                return None
        return self._finish()

    def _step(self) -> bool:
        """Take a step, or a round of them; return whether the group is to be left after it."""
        progress, rows = self.progress, self.facts.rows
        started, before = time.perf_counter(), progress.step
        result = self.stepper.take(before, self.facts.steps - before, self._flags)
        # From here on nothing can break: no rank waits for another.
        progress.step += len(result.plans)
        if isinstance(rows, StreamedRows):
            rows.forget(self._next_row)
        bad = result.skipped and not result.by_scaler
        # A round fails only if no rank learned anything; for a single step `taken` are all 0.
        failed = bad and not sum(result.summed.taken)
        progress.failures = progress.failures + 1 if failed else 0
        seconds = time.perf_counter() - started
        progress.window.add(result, seconds)
        if self._has_replicas:  # parts of a model exchange as they compute
            self.reports.links(progress.links, result, seconds, self.learning.exchange.bytes)
        metered = zip(result.summed.joules, result.summed.metered, strict=True)
        progress.add_energy(joules for joules, measured in metered if measured)
        self._agree_on_disks(result.summed.disk)
        if bad:
            self.reports.non_finite(progress.step, result, progress.failures)
        last, settings = progress.step == self.facts.steps, self.settings
        due = result.summed.keep or self._passed(before, settings.checkpoint_every)
        keep = last or result.summed.stop or due
        eval_every = settings.eval_every
        progress.evaluation_due = bool(not last and eval_every and self._passed(before, eval_every))
        progress.checkpoint_due = keep and not last
        progress.comparison_due = keep and self._has_replicas and not self.world.alone
        may_end = progress.evaluation_due and settings.early_stop
        # Log before each checkpoint too, so that a run resumed from it has no gap in metrics.
        if keep or may_end or self._passed(before, settings.log_every):
            slow = progress.links.named
            self.reports.step(progress.step, progress.window, result, progress.joules, slow)
            progress.window = LogWindow()
        progress.stopping = result.summed.stop and not last
        if progress.stopping:
            self.telemetry.say(f"stopping after step {progress.step}, as requested")
        return result.summed.pause

    def _agree_on_disks(self, states: Sequence[int]) -> None:
        """Take note of all nodes' disks, from the `states` of all ranks.

        Raises the error of this node's if no node's takes what the run writes.
        """
        layout, members = self.world.layout, self.world.members
        self.context.disk.agree([states[rank] for rank in members])
        failing = {layout[rank]: why for rank in members if (why := reason(states[rank]))}
        self.reports.disks(self.progress.step, self.progress.disks, failing)
        own = self.world.node
        control = self.world.control
        if control and self.world.keeps and failing.get(own) != self.progress.disks.get(own):
            control.tell(Disk(failing.get(own, "")))
        self.progress.disks = failing

    def _finish(self) -> str:
        """Do what follows the last step, together; return `finished` or `stopped`."""
        stopped = self.progress.stopping
        if not stopped and not self.learning.learner.stepped:
            raise HearthError(
                f"run {self.run.name}: nothing was learned: the gradient was not finite in any of "
                f"its {self.facts.steps} steps; check the data and the model, or start a new run "
                "with a lower learning_rate or precision=fp32"
            )
        self.checkpoint_at_end()
        if not stopped:
            if not self.progress.ended:
                self._evaluate("after")
            # The checkpoint, written before the evaluation to be safe, may lack a new best.
            self.checkpoint_at_end()
        self.work.wait()
        energy, disk = self.context.energy, self.context.disk
        pending = round(energy.pending(), 3) if energy.metered else None
        everyone = self.world.gather((pending, disk.state))
        rest = {rank: each for rank, (each, _) in zip(self.world.members, everyone, strict=True)}
        disk.agree([state for _, state in everyone])
        if self.world.control:
            # A rank that ends while another needs its state would leave that one behind for good.
            self.world.barrier()
        # From here on by itself.
        self.progress.add_energy(rest.values())
        by_rank = [rest.get(rank) for rank in range(self.world.size)]
        return self.conclude("stopped" if stopped else "finished", by_rank)

    def conclude(self, outcome: str, joules_by_rank: Sequence[float | None] | None = None) -> str:
        """Save the trained weights and record the end, by itself; return `outcome`.

        `joules_by_rank` is the energy since the last step of the ranks that measure their node's.
        """
        result = self.checkpointer.save_learned()
        ends_early = outcome == "finished" and self.progress.step < self.facts.steps
        self.telemetry.record(
            EndEvent(
                state=outcome,
                step=self.progress.step,
                exchanged_bytes=self.learning.exchange.given + self.learning.compute.sent,
                energy_joules=self.progress.joules,
                energy_joules_by_rank=joules_by_rank,
                reason=self._why_early() if ends_early else None,
                **result,
            )
        )
        return outcome

    def begin(self, launch: str, found: Checkpoint | None) -> None:
        """Begin a launch at checkpoint `found`, or at the first step if there is none.

        It resumes without `resume` too: after losing a node, supervisors relaunch the run.
        """
        # Under a supervisor, leave it: it removes its own stop file, and this one may be newer.
        if self.run.resumes and not self.world.generation and self.world.keeps:
            (self.context.folder / STOP_FILE).unlink(missing_ok=True)
        # Read before lines are forgotten: a step that is taken again uses energy twice.
        folders = [self.context.folder, *([found.path] if found else [])]
        records = [folder / METRICS for folder in folders]
        joules = joules_so_far(records, self.world)
        group = {"generation": self.world.generation, "nodes": self.world.nodes}
        self.progress = Progress(launch, **group, joules=joules)
        if found is None:
            if self.run.resumes and self.world.leads:
                print(f"no node has a checkpoint of run {self.run.name}: starting at step 0")
            return
        self.checkpointer.load(found)
        if isinstance(self.facts.rows, StreamedRows):
            self.facts.rows.go_to(found.facts["stream"])
        self.evaluator.best = found.facts["best"]
        self.evaluator.since_best = found.facts.get("since_best", 0)
        self.progress.step = found.step
        due = found.facts.get("unjudged", False)
        self.progress.evaluation_due = bool(
            due and self.settings.eval_every and found.step < self.facts.steps
        )
        # A further resume then skips that evaluation.
        self.progress.checkpoint_due = self.progress.evaluation_due

    def open_record(self) -> None:
        """Open the metrics for what follows."""
        self.telemetry.begin(self.progress.step, self.progress.evaluation_due)
        self.telemetry.lead(self.world.leads, self.progress.step)

    def _announce(self) -> None:
        """Record the start of the run."""
        self.work.wait()
        self.reports.start(self.progress.step)
        if not self.progress.step:
            for example in first_examples(self.learning.model.tokenizer, self.facts.rows, 1):
                self.telemetry.record(ExampleEvent(**record_of(example)))
        self.progress.announced = True
        self.progress.done += 1

    def _compare(self) -> None:
        """Compare the ranks' replicas, and take over the leader's where they differ."""
        self.work.begin("comparison of the replicas", RECORDING)
        state = self.learning.state.get()
        self.work.wait()
        self.reports.drift(self.progress.step, mend(state, self.world))
        self.progress.comparison_due = False
        self.progress.done += 1

    def _evaluate(self, when: str) -> None:
        """Evaluate the current weights and record the result."""
        self.evaluator.evaluate(when, self.progress.step, self.telemetry)
        self.progress.evaluation_due = False
        self.progress.begun |= when == "before"
        self.progress.ended |= when == "after"
        self.progress.done += 1
        if when == "during" and self.evaluator.gives_up:
            self.telemetry.say(
                f"ending after step {self.progress.step} of {self.facts.steps}: {self._why_early()}"
            )

    def _why_early(self) -> str:
        """Return the reason why the run ends before its last step."""
        count = self.evaluator.since_best
        return f"no lower held-out loss in {count} evaluation{'s' * (count > 1)} in a row"

    def _passed(self, before: int, every: int) -> bool:
        """Return whether a multiple of `every` steps was reached since step `before`."""
        return self.progress.step // every > before // every

    def _flags(self) -> dict[str, bool]:
        """Return this rank's flags: to stop, to take a checkpoint or to pause after the step."""
        control = self.world.control
        return {
            "stop": (self.context.folder / STOP_FILE).exists(),
            "keep": self.checkpointer.overdue(),
            "pause": bool(control and (control.paused or control.leaving)),
        }

    def _facts(self) -> dict[str, Any]:
        """Return the facts to record in a checkpoint's manifest."""
        position = self.stream_position()
        return {
            "generation": self.progress.generation,
            "launch": self.progress.launch,
            "nodes": self.world.layout,
            "seed": self.settings.seed,
            **self.facts.inputs,
            "best": self.evaluator.best,
            "since_best": self.evaluator.since_best,
            "unjudged": self.progress.evaluation_due,
            **({} if position is None else {"stream": position}),
        } | asdict(self.facts.choices)

    def stream_position(self) -> Any:
        """Return the place in a stream of the first row that no step has taken; None without."""
        rows = self.facts.rows
        return rows.position(self._next_row) if isinstance(rows, StreamedRows) else None

    @property
    def _next_row(self) -> int:
        """The number of the first row of a stream that no step has taken."""
        return self.progress.step * self.settings.global_batch

    def _checkpoint(self) -> None:
        """Write a checkpoint after this step, on every node."""
        step, facts = self.progress.step, self._facts()
        if self.checkpointer.keep(step, facts):
            self.kept = step, facts["best"], facts["unjudged"]
        self.progress.checkpoint_due = False

    def checkpoint_at_end(self) -> None:
        """Write a checkpoint unless the newest that this process wrote is the same."""
        newest = self.progress.step, self.evaluator.best, self.progress.evaluation_due
        if self.kept != newest:
            self._checkpoint()
