"""The training loop: a run from its first step, or its newest checkpoint, to its end.

Everything that ranks do together is done in two parts: first all that needs the others, then what
changes this rank, by itself. So what a lost rank interrupts can be undone, and be done again by
another group (see `in_place`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hearth.base.errors import HearthError
from hearth.config import Run, in_precision
from hearth.config.layout import Layout
from hearth.data.preview import first_examples
from hearth.data.rows import Rows
from hearth.data.shown import record_of
from hearth.data.stream import StreamedRows
from hearth.node.facts import software_here
from hearth.node.prepare import Prepared, inputs_of
from hearth.node.probe import Measured
from hearth.node.speed import power_here
from hearth.plan.placement import Placement
from hearth.plan.planner import Planner, Staged
from hearth.plan.row_order import choose_order
from hearth.ranks.control_protocol import Disk
from hearth.ranks.energy import Meter
from hearth.ranks.world import World, agree
from hearth.record.checkpoint import Checkpoint, not_written
from hearth.record.events import EndEvent, ExampleEvent
from hearth.record.folders import choose_writers
from hearth.record.history import joules_so_far
from hearth.record.lines import METRICS
from hearth.record.own_disk import DISK_ERRORS, OwnDisk, reason
from hearth.trainer.assembly import assemble, choose, limit_resources
from hearth.trainer.checkpointing import BEST, Checkpointer
from hearth.trainer.evaluation import Evaluator
from hearth.trainer.placing import choose_placement
from hearth.trainer.planning import choose_planner
from hearth.trainer.progress import Progress
from hearth.trainer.regrouping import nodes_of
from hearth.trainer.replicas import mend, sync_weights
from hearth.trainer.reports import Reports
from hearth.trainer.stepper import Stepper
from hearth.trainer.telemetry import Telemetry
from hearth.trainer.window import LogWindow
from hearth.trainer.work import Work

RECORDING = 900.0
"""Seconds in which a rank must begin or end its part of the record, on a slow disk."""

STOP_FILE = "stop"
"""Stop file: if it exists in the run's folder, the run stops after the current step."""

_LOADING = 3600.0
"""Seconds in which a model must be loaded: large ones come from slow disks or over the network."""


class Trainer:
    """One rank of a run: `train()` resumes its newest checkpoint and trains to the end.

    With `choices`, those of a group that trains already, the rank loads by itself, and `train()`
    begins by waiting to join it. Else all members of the group construct their trainers together;
    `GroupBroken` is raised if one of them is lost.
    """

    def __init__(
        self,
        run: Run,
        layout: Layout,
        prepared: Prepared,
        measured: Measured,
        world: World,
        choices: dict[str, str] | None = None,
    ) -> None:
        settings, joins = run.settings, choices is not None
        self.run, self.world, self.settings, self.measured = run, world, settings, measured
        self.folder = layout.run_dir(run.name)
        self.checkpoints = layout.checkpoint_dir(run.name)
        if not world.control:  # nodes of supervisors have workspaces of their own
            choose_writers(layout.results, world)
        self.disk = OwnDisk(world.keeps, spares=len(nodes_of(world)) > 1)
        self.checkpointer = Checkpointer(run, layout, world, self.disk)
        self.work = Work(world, measured.speed)
        self.work.begin("loading", _LOADING)
        self.energy = Meter.open(world)
        self.rows: Rows = prepared.data.train
        self.inputs = inputs_of(prepared)
        self.power = power_here(run, layout, prepared, world.device)
        self.identity = {"run": run.name} | software_here() | self.inputs
        agree(world, self.identity)
        launch = "" if joins else world.from_leader(secrets.token_hex(8))
        found = None if joins else self._newest()
        # A resumed run keeps the values that `auto` was first resolved to, even on other nodes.
        self.choices = choose(settings, world, choices or (found.facts if found else {}))
        model = prepared.model.path
        self.placement: Placement | None = None
        if settings.in_stages:
            in_its_precision = in_precision(run, self.choices.precision)
            self.placement, micro_batch = choose_placement(in_its_precision, layout, model, world)
            self.planner: Planner = Staged(self.placement, world.size, micro_batch)
        else:
            self.planner = choose_planner(settings, measured, layout, world, joins)
        data = prepared.data
        self.order = choose_order(settings, len(data.train), data.parts)
        agree(world, self.order.identity())
        self.steps = self.order.steps(settings.epochs, settings.max_steps)
        limit_resources(settings, world)
        parts = assemble(
            run,
            model,
            self.rows,
            self.steps,
            self.choices,
            world,
            self.work,
            self.placement,
        )
        self.model, self.parameters = parts.model, parts.parameters
        self.exchange, self.learner = parts.exchange, parts.learner
        self.compute = parts.compute
        learning = self.model.learning()
        self.identity |= self.order.identity() | learning | asdict(self.choices)
        if not joins:
            agree(world, learning)
            if not self.placement:
                sync_weights(self.parameters, world)
        self.telemetry = Telemetry(
            run, self.folder, world.keeps if world.control else world.leads, self.disk
        )
        self.reports = Reports(
            run,
            world,
            self.planner,
            self.order,
            self.steps,
            self.telemetry,
            bool(parts.rounds),
            self.placement,
        )
        self.stepper = Stepper(
            settings,
            self.rows,
            self.order,
            world,
            self.planner,
            parts.compute,
            self.exchange,
            self.learner,
            self._flags,
            self.reports.plans,
            parts.rounds,
            self.work,
            self.energy,
            self.disk,
        )
        self.evaluator = Evaluator(
            settings,
            prepared.data,
            self.model.tokenizer,
            parts.compute,
            world,
            self.planner,
            keep_best=self._keep_best,
            work=self.work,
        )
        self.state = parts.state
        self.progress = Progress()
        self.kept: tuple[Any, ...] | None = None
        if not joins:
            self._begin(launch, found)

    def train(self) -> str:
        """Train to the end or until a stop is requested; return `finished` or `stopped`.

        Raises `HearthError` if the run cannot continue.
        """
        outcome = None
        try:
            outcome = self._train()
        except DISK_ERRORS as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise  # a network error, not a disk error
            raise not_written(self.checkpoints, "what the run recorded", error) from error
        finally:
            self.energy.close()
            try:
                self.work.begin("end of the record", RECORDING)
            finally:
                self.telemetry.close(failed=outcome is None)
        return outcome

    @property
    def has_replicas(self) -> bool:
        """Whether several ranks hold the whole model each."""
        parted = self.settings.parallel == "fsdp" or self.placement
        return not parted and not self.world.alone

    @property
    def step(self) -> int:
        """The number of steps done."""
        return self.progress.step

    def _train(self) -> str:
        """Train in the group that the trainer was made in; return `finished` or `stopped`.

        Raises `HearthError` if the run ends without a single optimizer step.
        """
        self._open_record()
        outcome = self._go_on()
        assert outcome, "only a group that is formed in place can pause"
        return outcome

    def _go_on(self) -> str | None:
        """Do what is left of the run; return `finished` or `stopped`, None for a pause.

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
            if progress.step >= self.steps or self.evaluator.gives_up:
                break
            paused = self._step()
            if paused and not progress.stopping:
                return None
        return self._finish()

    def _step(self) -> bool:
        """Take a step, or a round of them; return whether the group is to be left after it."""
        progress, settings = self.progress, self.settings
        started, before = time.perf_counter(), progress.step
        result = self.stepper.take(before, self.steps - before)
        # From here on nothing can break: no rank waits for another.
        progress.step += len(result.plans)
        if isinstance(self.rows, StreamedRows):
            self.rows.forget(self._next_row)
        bad = result.skipped and not result.by_scaler
        # A round fails only if no rank learned anything; for a single step `taken` are all 0.
        failed = bad and not sum(result.summed.taken)
        progress.failures = progress.failures + 1 if failed else 0
        seconds = time.perf_counter() - started
        progress.window.add(result, seconds)
        if not (self.placement or settings.parallel == "fsdp"):  # they exchange as they compute
            self.reports.links(progress.links, result, seconds, self.exchange.bytes)
        metered = zip(result.summed.joules, result.summed.metered, strict=True)
        progress.add_energy(joules for joules, measured in metered if measured)
        self._agree_on_disks(result.summed.disk)
        if bad:
            self.reports.non_finite(progress.step, result, progress.failures)
        last = progress.step == self.steps
        due = result.summed.keep or self._passed(before, settings.checkpoint_every)
        keep = last or result.summed.stop or due
        eval_every = settings.eval_every
        progress.evaluation_due = bool(not last and eval_every and self._passed(before, eval_every))
        progress.checkpoint_due = keep and not last
        progress.comparison_due = keep and self.has_replicas
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
        self.disk.agree([states[rank] for rank in members])
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
        if not stopped and not self.learner.stepped:
            raise HearthError(
                f"run {self.run.name}: nothing was learned: the gradient was not finite in any of "
                f"its {self.steps} steps; check the data and the model, or start a new run with a "
                "lower learning_rate or precision=fp32"
            )
        self._checkpoint_at_end()
        if not stopped:
            if not self.progress.ended:
                self._evaluate("after")
            # The checkpoint, written before the evaluation to be safe, may lack a new best.
            self._checkpoint_at_end()
        self.work.wait()
        pending = round(self.energy.pending(), 3) if self.energy.metered else None
        told = self.world.gather((pending, self.disk.state))
        rest = {rank: each for rank, (each, _) in zip(self.world.members, told, strict=True)}
        self.disk.agree([state for _, state in told])
        if self.world.control:
            # Nobody ends while another may need its state: that rank would stay behind for good.
            self.world.barrier()
        # From here on by itself.
        self.progress.add_energy(rest.values())
        by_rank = [rest.get(rank) for rank in range(self.world.size)]
        return self._conclude("stopped" if stopped else "finished", by_rank)

    def _conclude(self, outcome: str, joules_by_rank: Sequence[float | None] | None = None) -> str:
        """Save the trained weights and record the end, by itself; return `outcome`.

        `joules_by_rank` is the energy since the last step of the ranks that measure their node's.
        """
        self.work.begin("trained weights", self.checkpointer.allowed_seconds(self.parameters))
        result = self.checkpointer.save(self.state, self.model.learned)
        ends_early = outcome == "finished" and self.progress.step < self.steps
        self.telemetry.record(
            EndEvent(
                state=outcome,
                step=self.progress.step,
                exchanged_bytes=self.exchange.given + self.compute.sent,
                energy_joules=self.progress.joules,
                energy_joules_by_rank=joules_by_rank,
                reason=self._why_early() if ends_early else None,
                **{self.model.learned: str(result)},
            )
        )
        return outcome

    def _newest(self) -> Checkpoint | None:
        """Return the newest checkpoint of any node.

        Raises `HearthError` if it comes from other data or another model.
        """
        found = self.checkpointer.newest()
        if found:
            self._check_begun_with(found)
        return found

    def _begin(self, launch: str, found: Checkpoint | None) -> None:
        """Begin a launch at checkpoint `found`, or at the first step if there is none.

        It resumes without `resume` too: after losing a node, supervisors relaunch the run.
        """
        # Under a supervisor, leave it: it removes its own stop file, and this one may be newer.
        if self.run.resumes and not self.world.generation and self.world.keeps:
            (self.folder / STOP_FILE).unlink(missing_ok=True)
        # Read before lines are forgotten: a step that is taken again uses energy twice.
        records = [each / METRICS for each in (self.folder, *([found.path] if found else []))]
        joules = joules_so_far(records, self.world)
        nodes = nodes_of(self.world)
        self.progress = Progress(launch, self.world.generation, nodes=nodes, joules=joules)
        if found is None:
            if self.run.resumes and self.world.leads:
                print(f"no node has a checkpoint of run {self.run.name}: starting at step 0")
            return
        self.checkpointer.load(found, self.state)
        if isinstance(self.rows, StreamedRows):
            self.rows.go_to(found.facts["stream"])
        self.evaluator.best = found.facts["best"]
        self.evaluator.since_best = found.facts.get("since_best", 0)
        self.progress.step = found.step
        due = found.facts.get("unjudged", False)
        self.progress.evaluation_due = bool(
            due and self.settings.eval_every and found.step < self.steps
        )
        # A further resume then skips that evaluation.
        self.progress.checkpoint_due = self.progress.evaluation_due

    def _open_record(self) -> None:
        """Open the metrics for what follows."""
        self.telemetry.begin(self.progress.step, self.progress.evaluation_due)
        self.telemetry.lead(self.world.leads, self.progress.step)

    def _announce(self) -> None:
        """Record the start of the run."""
        self.work.wait()
        self.reports.start(
            self.progress.step,
            self.rows,
            self.model,
            self.exchange.bytes + self.learner.shared_bytes,
            self.power,
            **self.inputs,
            **asdict(self.choices),
        )
        if not self.progress.step:
            for example in first_examples(self.model.tokenizer, self.rows, 1):
                self.telemetry.record(ExampleEvent(**record_of(example)))
        self.progress.announced = True
        self.progress.done += 1

    def _compare(self) -> None:
        """Compare the ranks' replicas, and take over the leader's where they differ."""
        self.work.begin("comparison of the replicas", RECORDING)
        state = self.state.get()
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
                f"ending after step {self.progress.step} of {self.steps}: {self._why_early()}"
            )

    def _keep_best(self) -> None:
        """Save the current weights as the best, by itself."""
        self.work.begin("best weights", self.checkpointer.allowed_seconds(self.parameters))
        self.checkpointer.save(self.state, BEST)

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
            "stop": (self.folder / STOP_FILE).exists(),
            "keep": self.checkpointer.overdue(),
            "pause": bool(control and (control.paused or control.leaving)),
        }

    def _check_begun_with(self, found: Checkpoint) -> None:
        """Raise `HearthError` if checkpoint `found` comes from other data or another model.

        All ranks raise it: they agreed on data and model, and `found` is the same everywhere.
        """
        findings = [
            f"{name}: run '{self.run.name}' started with another {what} (fingerprint "
            f"{found.facts.get(name, 'not recorded')}, now {self.inputs[name]}); restore the "
            f"{what} that it started with, or start a new run"
            for name, what in (("data", "data set"), ("model", "model"))
            if found.facts.get(name) != self.inputs[name]
        ]
        if findings:
            raise HearthError(*findings)

    def _facts(self) -> dict[str, Any]:
        """Return the facts to record in a checkpoint's manifest."""
        position = self._stream_position()
        return {
            "generation": self.progress.generation,
            "launch": self.progress.launch,
            "nodes": self.world.layout,
            "seed": self.settings.seed,
            "data": self.inputs["data"],
            "model": self.inputs["model"],
            "best": self.evaluator.best,
            "since_best": self.evaluator.since_best,
            "unjudged": self.progress.evaluation_due,
            **({} if position is None else {"stream": position}),
        } | asdict(self.choices)

    def _stream_position(self) -> Any:
        """Return the place in a stream of the first row that no step has taken; None without."""
        streams = isinstance(self.rows, StreamedRows)
        return self.rows.position(self._next_row) if streams else None

    @property
    def _next_row(self) -> int:
        """The number of the first row of a stream that no step has taken."""
        return self.progress.step * self.settings.global_batch

    def _checkpoint(self) -> None:
        """Write a checkpoint after this step, on every node."""
        self.work.begin("checkpoint", self.checkpointer.allowed_seconds(self.parameters))
        step, facts = self.progress.step, self._facts()
        if self.checkpointer.keep(step, facts, self.state, self.telemetry):
            self.kept = step, facts["best"], facts["unjudged"]
        self.progress.checkpoint_due = False

    def _checkpoint_at_end(self) -> None:
        """Write a checkpoint unless the newest that this process wrote is the same."""
        newest = self.progress.step, self.evaluator.best, self.progress.evaluation_due
        if self.kept != newest:
            self._checkpoint()
