"""The training loop: a run from its first step, or its newest checkpoint, to its end."""

from __future__ import annotations

import functools
import secrets
import time
from collections import deque
from dataclasses import asdict
from typing import Any

import torch

from hearth.base.errors import HearthError
from hearth.base.software import software_here
from hearth.config import Run
from hearth.config.layout import Layout
from hearth.data.rows import Rows
from hearth.data.stream import StreamedRows
from hearth.data.template import ensure_chat_template
from hearth.measure.probe import Measured
from hearth.model import precision
from hearth.model.load import load_model
from hearth.model.optimizer import Means, choose_optimizer, make_optimizer, means_here
from hearth.model.packing_isolation import check_isolation
from hearth.model.sharded import load_sharded, weight_bytes
from hearth.plan.follow import AdaptivePlanner
from hearth.plan.row_order import RowOrder, StreamOrder
from hearth.plan.sharded import network_cost
from hearth.plan.split import Plans
from hearth.plan.straggler import moves
from hearth.prepare.node import Prepared, inputs_of, versions_here
from hearth.ranks.memory import limit_memory
from hearth.ranks.world import World, agree
from hearth.record.checkpoint import DISK_ERRORS, Checkpoint, not_written
from hearth.trainer import rounds
from hearth.trainer.checkpointing import BEST, Checkpointer
from hearth.trainer.compute import Compute
from hearth.trainer.evaluation import Evaluator
from hearth.trainer.exchange import Exchange
from hearth.trainer.optimizer_step import Learner
from hearth.trainer.planning import choose_planner, rows_over, slowness_of
from hearth.trainer.stepper import Stepper
from hearth.trainer.sync_weights import sync_weights
from hearth.trainer.telemetry import Telemetry, step_line
from hearth.trainer.window import LogWindow, StepResult

_NON_FINITE_IN_A_ROW = 3

STOP_FILE = "stop"
"""Stop file: if it exists in the run's folder, the run stops after the current step."""


class Trainer:
    """One rank of a run: `train()` resumes its newest checkpoint and trains to the end."""

    def __init__(
        self,
        run: Run,
        layout: Layout,
        prepared: Prepared,
        measured: Measured,
        world: World,
        choices: dict[str, Any] | None = None,
    ) -> None:
        settings = run.settings
        self.run, self.world, self.settings = run, world, settings
        self.folder = layout.run_dir(run.name)
        self.checkpoints = layout.checkpoint_dir(run.name)
        self.checkpointer = Checkpointer(run, layout, world)
        self.rows: Rows = prepared.data.train
        self.inputs = inputs_of(prepared)
        agree(world, {"run": run.name} | software_here() | self.inputs)
        self.launch = world.from_leader(secrets.token_hex(8))
        found = self.checkpointer.newest()
        if found:
            self._check_begun_with(found)
        # A resumed run keeps the values that `auto` was first resolved to, even on other nodes.
        begun = choices or (found.facts if found else {})
        self.planner = choose_planner(settings, measured, layout, world)
        self.order: RowOrder | StreamOrder = StreamOrder(settings.global_batch)
        if not settings.streaming:
            self.order = RowOrder(
                len(self.rows), settings.global_batch, settings.seed, prepared.data.parts
            )
        self.steps = self.order.steps(settings.epochs, settings.max_steps)

        if settings.threads:
            torch.set_num_threads(settings.threads)
        if settings.memory_limit and world.device.type == "cpu":
            limit_memory(settings.memory_limit)
        everyone = world.gather((world.node, precision.supported(world.device)))
        self.nodes = [node for node, _ in everyone]
        self.precision = precision.choose(begun.get("precision", settings.precision), everyone)
        means = [
            Means(**each) for each in world.gather(asdict(means_here(world.node, world.device)))
        ]
        # A single rank has nothing to average.
        learns_alone = settings.sync_every > 1 and world.size > 1
        self.chosen_optimizer = choose_optimizer(
            begun.get("optimizer", settings.optimizer), means, averaged=settings.sync_every > 1
        )
        torch.manual_seed(settings.seed)
        folder = prepared.model.path
        if settings.parallel == "fsdp":
            self.model = load_sharded(settings, folder, world, self.precision)
        else:
            self.model = load_model(settings, folder, world.device, self.precision)
        ensure_chat_template(self.model.tokenizer)
        agree(world, self.model.learning())
        self.parameters = [parameter for _, parameter in self.model.trainable()]
        sync_weights(self.parameters, world)
        parts = rounds.PARTS if learns_alone else 1
        self.exchange = Exchange(self.parameters, world, settings.compress, parts)
        scaler = precision.loss_scaler(self.precision, world.device)
        self.model.use_scaler(scaler)
        autocast = functools.partial(precision.autocast, self.precision, world.device)
        if run.packs_documents or self.model.joins_rows:
            check_isolation(
                self.model, run.source.id, autocast, lambda here: any(world.gather(here))
            )
        optimizer = make_optimizer(
            self.chosen_optimizer, settings, self.model, world.rank, self.exchange.share
        )
        self.learner = Learner(optimizer, settings, self.parameters, scaler, self.steps)
        self.changing: dict[str, Any] = self.learner.changing
        self.rounds: rounds.Rounds | None = None
        if learns_alone:
            rounds.check(self.precision)
            self.rounds = rounds.Rounds(self.parameters, self.learner.optimizer, self.exchange)
            self.changing = self.changing | {"outer": self.rounds.outer}
        self.stepper = Stepper(
            settings,
            self.rows,
            self.order,
            world,
            self.planner,
            Compute(self.model, self.rows, autocast, self.exchange.clear, scaler.scale),
            self.exchange,
            self.learner,
            self._flags,
            self._on_plans,
            self.rounds,
        )
        self.evaluator = Evaluator(
            settings,
            prepared.data,
            self.model,
            world,
            self.planner,
            autocast,
            keep_best=lambda: self.checkpointer.save(self.model, BEST),
        )
        self.step = 0
        # A stop does not wait for an evaluation; one that is due runs after the run is resumed.
        self.evaluation_due = False
        self.recent_seconds: deque[float] = deque(maxlen=20)
        self._go_on_from(found)

    def train(self) -> str:
        """Train to the end or until a stop is requested; return `finished` or `stopped`.

        Raises `HearthError` if the run cannot continue.
        """
        self.telemetry = Telemetry(
            self.run, self.folder, self.world.leads, self.step, self.evaluation_due
        )
        outcome = None
        try:
            outcome = self._train()
        except DISK_ERRORS as error:
            if isinstance(error, ConnectionError | TimeoutError):
                raise  # a network error, not a disk error
            raise not_written(self.checkpoints, "what the run recorded", error) from error
        finally:
            self.telemetry.close(failed=outcome is None)
        return outcome

    def _train(self) -> str:
        """Train from the current step; return `finished` or `stopped`.

        Raises `HearthError` if the run ends without a single optimizer step.
        """
        began = time.monotonic()
        self._announce()
        if self.step == 0:
            self._evaluate("before")
        elif self.evaluation_due and self.settings.eval_every and self.step < self.steps:
            self._evaluate("during")
            self._checkpoint()  # a further resume then skips this evaluation
        stopped = self._steps()
        if not stopped and not self.learner.stepped:
            raise HearthError(
                f"run {self.run.name}: nothing was learned: the gradient was not finite in any of "
                f"its {self.steps} steps; check the data and the model, or start a new run with a "
                "lower learning_rate or precision=fp32"
            )
        self._checkpoint()
        if not stopped:
            best = self.evaluator.best
            self._evaluate("after")
            if (
                self.evaluator.best != best
            ):  # the checkpoint, written before the evaluation to be safe, lacks the new best
                self._checkpoint()
        result = self.checkpointer.save(self.model, self.model.learned)
        outcome = "stopped" if stopped else "finished"
        early = {"reason": self._why_early()} if not stopped and self.step < self.steps else {}
        self.telemetry.record(
            "end",
            state=outcome,
            step=self.step,
            seconds=round(time.monotonic() - began, 1),
            exchanged_bytes=self.exchange.given,
            **{self.model.learned: str(result)},
            **early,
        )
        return outcome

    def _steps(self) -> bool:
        """Take all remaining steps; return whether a stop was requested before the last one.

        With `early_stop` the steps may end earlier.
        """
        since_log = LogWindow()
        failures = 0
        while self.step < self.steps and not self.evaluator.gives_up:
            started, before = time.perf_counter(), self.step
            result = self.stepper.take(self.step, self.steps - self.step)
            self.step += len(result.plans)
            if isinstance(self.rows, StreamedRows):
                self.rows.forget(self._next_row)
            bad = result.skipped and not result.by_scaler
            # A round fails only if no rank learned anything; for a single step labels are all 0.
            failures = failures + 1 if bad and not sum(result.summed.labels) else 0
            since_log.add(result, time.perf_counter() - started)
            if bad:
                self._report_non_finite(result, failures)
            last = self.step == self.steps
            due = result.summed.keep or self._passed(before, self.settings.checkpoint_every)
            keep = last or result.summed.stop or due
            eval_every = self.settings.eval_every
            self.evaluation_due = bool(not last and eval_every and self._passed(before, eval_every))
            may_end = self.evaluation_due and self.settings.early_stop
            # Log before each checkpoint too, so that a run resumed from it has no gap in metrics.
            if keep or may_end or self._passed(before, self.settings.log_every):
                self._log(since_log, result)
                since_log = LogWindow()
            if result.summed.stop and not last:
                self.telemetry.say(f"stopping after step {self.step}, as requested")
                return True
            if self.evaluation_due:
                self._evaluate("during")
            if keep and not last and not self.evaluator.gives_up:
                self._checkpoint()
        if self.step < self.steps:
            self.telemetry.say(
                f"ending after step {self.step} of {self.steps}: {self._why_early()}"
            )
        return False

    def _why_early(self) -> str:
        """Return the reason why the run ends before its last step."""
        count = self.evaluator.since_best
        return f"no lower held-out loss in {count} evaluation{'s' * (count > 1)} in a row"

    def _passed(self, before: int, every: int) -> bool:
        """Return whether a multiple of `every` steps was reached since step `before`."""
        return self.step // every > before // every

    def _flags(self) -> dict[str, bool]:
        """Return this rank's flags: whether to stop, or to take a checkpoint, after the step."""
        return {
            "stop": (self.folder / STOP_FILE).exists(),
            "keep": self.checkpointer.overdue(),
        }

    def _on_plans(self, step: int, before: Plans, plans: Plans) -> None:
        """Record each changed plan, and announce a changed split if it adapts to the machines."""
        was, now = rows_over(before), rows_over(plans)
        slowness = slowness_of(self.planner, self.world.size)
        in_round = {"rows_of_round": now} if len(plans) > 1 else {}
        # A round with a new split is recorded even if its first step has the same plan as before.
        last = before[-1] if before and not (in_round and was != now) else None
        for number, plan in enumerate(plans, step + 1):
            if plan != last:
                self.telemetry.record(
                    "plan",
                    step=number,
                    rows=plan.rows,
                    micro_batch=plan.micro_batch,
                    slowness=slowness,
                    **in_round,
                )
            last = plan
        if isinstance(self.planner, AdaptivePlanner) and sum(was) == sum(now) and was != now:
            what = "the split of a round" if in_round else "the split"
            self.telemetry.say(f"{what} {moves(was, now, slowness, self.nodes)}")

    def _report_non_finite(self, result: StepResult, failures: int) -> None:
        """Report the rows, of all ranks, that gave a non-finite gradient.

        Raises `HearthError` on all ranks after too many failures in a row.
        """
        unit = "round" if self.rounds else "step"
        named = [source for found in self.world.gather(result.bad) for source in found]
        rows = f"row{'s' * (len(named) > 1)} {', '.join(named)}" if named else "no row by itself"
        self.telemetry.record("skip", step=self.step, rows=named)
        skipped = f"step {self.step} skipped"
        if self.rounds:
            steps = f"{result.skipped} local step{'s' * (result.skipped > 1)}"
            skipped = f"{steps} skipped in the {len(result.plans)} before step {self.step + 1}"
        self.telemetry.say(f"{skipped}: non-finite gradient in {rows}")
        if failures == _NON_FINITE_IN_A_ROW:
            last = f"up to step {self.step}" if self.rounds else f"step {self.step}"
            raise HearthError(
                f"the gradient was not finite in {failures} {unit}s in a row, the last of them "
                f"{last} ({rows}); check these rows, or start a new run with a lower "
                "learning_rate or precision=fp32"
            )

    def _log(self, window: LogWindow, last: StepResult) -> None:
        """Record the steps in `window` as one line of metrics; `last` is the newest step."""
        self.recent_seconds.extend(window.seconds)
        per_step = sorted(self.recent_seconds)[len(self.recent_seconds) // 2]
        record = window.record() | {
            "step": self.step,
            "steps": self.steps,
            "epoch": round(self.step / self.order.steps_per_epoch, 4),
            "learning_rate": last.rate,
            "grad_norm": last.norm,
            "eta_seconds": round(per_step * (self.steps - self.step), 1),
        }
        self.telemetry.record("step", **record)
        self.telemetry.say(step_line(record, self.nodes))

    def _announce(self) -> None:
        """Record the start of the run: ranks, data, model, versions, resolved settings."""
        ranks = self.world.gather(
            {"rank": self.world.rank, "node": self.world.node, "device": str(self.world.device)}
        )
        self.telemetry.record(
            "start",
            run=self.run.name,
            generation=self.world.generation,
            world_size=self.world.size,
            ranks=ranks,
            step=self.step,
            steps=self.steps,
            **self._epoch(),
            trainable_parameters=sum(parameter.numel() for parameter in self.parameters),
            versions=versions_here(),
            data=self.inputs["data"],
            model=self.inputs["model"],
            **self._choices(),
            gradients="nccl" if self.world.gradients else "gloo",
            exchange_bytes=self.exchange.bytes + self.learner.shared_bytes,
            **self._shards(),
        )
        where = ", ".join(f"{rank['node']} ({rank['device']})" for rank in ranks)
        self.telemetry.say(
            f"run {self.run.name}: step {self.step} of {self.steps}, "
            f"{'streamed' if self.settings.streaming else len(self.rows)} rows, "
            f"{self.precision}, on {where}"
        )
        if self.rounds:
            self.telemetry.say(
                f"sync_every={self.settings.sync_every}: each rank takes that many local steps "
                "between two averagings; the result is approximate"
            )
        if self.settings.compress != "none" and self.world.size > 1:
            self.telemetry.say(
                f"compress={self.settings.compress}: gradients are rounded to it for the exchange; "
                "the result is approximate"
            )

    def _epoch(self) -> dict[str, int]:
        """Return the rows and the tokens of an epoch for the record; a stream has none."""
        if isinstance(self.order, StreamOrder):
            return {}
        order = self.order.epoch(0)
        return {"rows": len(self.rows), "tokens_per_epoch": int(self.rows.tokens[order].sum())}

    def _shards(self) -> dict[str, Any]:
        """Return shard sizes in bytes for the record and announce their cost; {} without shards."""
        if self.settings.parallel == "ddp":
            return {}
        weights, own = weight_bytes(self.model)
        self.telemetry.say(network_cost(weights, self.world.size))
        turns = self.planner.share(self.settings.global_batch).turns
        self.telemetry.say(
            f"micro-batches per step: {turns}; no held-out question is answered, since every token "
            "would fetch as much"
        )
        return {"weight_bytes": weights, "weight_bytes_by_rank": self.world.gather(own)}

    def _evaluate(self, when: str) -> None:
        """Evaluate the current weights and record the result."""
        self.evaluator.evaluate(when, self.step, self.telemetry)
        self.evaluation_due = False

    def _go_on_from(self, found: Checkpoint | None) -> None:
        """Restore the run from checkpoint `found`, if there is one.

        This happens without `resume` too: after losing a node, supervisors relaunch the run.
        """
        # Under a supervisor, leave it: it removes its own stop file, and this one may be newer.
        if self.run.resumes and not self.world.generation and self.world.local_rank == 0:
            (self.folder / STOP_FILE).unlink(missing_ok=True)
        if found is None:
            if self.run.resumes and self.world.leads:
                print(f"no node has a checkpoint of run {self.run.name}: starting at step 0")
            return
        self.checkpointer.load(found, self.model, self.changing)
        self.step = found.step
        if isinstance(self.rows, StreamedRows):
            self.rows.go_to(found.facts["stream"])
        self.evaluator.best = found.facts["best"]
        self.evaluator.since_best = found.facts.get("since_best", 0)
        self.evaluation_due = found.facts.get("unjudged", False)

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

    def _choices(self) -> dict[str, str]:
        """Return the resolved values of `auto` settings, which a resumed run keeps."""
        return {"precision": self.precision, "optimizer": self.chosen_optimizer}

    def _facts(self) -> dict[str, Any]:
        """Return the facts to record in a checkpoint's manifest."""
        streams = isinstance(self.rows, StreamedRows)
        stream = {"stream": self.rows.position(self._next_row)} if streams else {}
        return {
            "generation": self.world.generation,
            "launch": self.launch,
            "nodes": self.nodes,
            "seed": self.settings.seed,
            "data": self.inputs["data"],
            "model": self.inputs["model"],
            "best": self.evaluator.best,
            "since_best": self.evaluator.since_best,
            "unjudged": self.evaluation_due,
            **stream,
        } | self._choices()

    @property
    def _next_row(self) -> int:
        """The number of the first row of a stream that no step has taken."""
        return self.step * self.settings.global_batch

    def _checkpoint(self) -> None:
        """Write a checkpoint after this step, on every node."""
        self.checkpointer.keep(self.step, self._facts(), self.model, self.changing, self.telemetry)
