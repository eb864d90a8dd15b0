"""One rank's part of a step that all ranks take together, or of a round of local steps.

Why any split of a global batch gives the gradient of one big GPU: let the batch have N labelled
tokens with losses l_i. Each rank computes, for its rows, the sum of its l_i / N; the gradients of
these sums are added over the ranks, and the gradient of a sum is the sum of the gradients:

    sum over ranks of  grad( sum over its tokens of l_i / N )  =  grad( mean of all l_i )

N is known to every rank beforehand from the token index and needs no communication. A rank without
rows adds zero. (This does not hold for rounds of local steps: see `rounds`.)

For the same reason, a step that loses a rank can be taken again by the others. Until the last
exchange of a step has succeeded, nothing that lasts is changed: parameters, optimizer, schedule,
planner and record. `Stepper.abandon` undoes the rest.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from hearth.base.errors import HearthError
from hearth.node.probe import Measured
from hearth.plan.planner import Planner, Replayed
from hearth.plan.split import Plan, Plans
from hearth.ranks.energy import celsius
from hearth.ranks.memory import peak_mib
from hearth.trainer import rounds
from hearth.trainer.components import Learning, RankContext, RunFacts
from hearth.trainer.compute import Computed
from hearth.trainer.exchange import StepSum
from hearth.trainer.objective import StepCounts
from hearth.trainer.planning import regroup_planner
from hearth.trainer.progress import StepResult
from hearth.trainer.work import OPTIMIZER

T = TypeVar("T")
Flags = Callable[[], Mapping[str, bool]]

_ROUNDING = 1e-6
"""Relative error of a count of tokens: it travels as one of the gradients' numbers, of 24 bits."""


class Stepper:
    """Takes the steps of a run on the rows that the planner gives to this rank.

    `on_plans` is called with the 0-based step, the previous plans and the new ones, after each
    exchange; after a step that all take together, called again with its plan and the plan as it was
    computed.
    """

    def __init__(
        self,
        context: RankContext,
        facts: RunFacts,
        learning: Learning,
        planner: Planner,
        on_plans: Callable[[int, Plans, Plans], None],
    ) -> None:
        self._settings, self._world, self._work = context.settings, context.world, context.work
        self._energy, self._disk = context.energy, context.disk
        self._rows, self._order = facts.rows, facts.order
        self._objective, self._compute = learning.objective, learning.compute
        self._exchange, self._learner = learning.exchange, learning.learner
        self._rounds, self._planner, self._on_plans = learning.rounds, planner, on_plans
        self._in_round = False
        self._plans: Plans = ()  # as they were computed
        self._updating = 0.0  # seconds of the optimizer's last step

    def take(self, step: int, most: int, flags: Flags) -> StepResult:
        """Take the 0-based `step`, or a round of at most `most` that begins with it.

        `flags` returns this rank's flags for `StepSum`; it is called just before the exchange.

        Raises `HearthError` before the first if the record of an earlier run does not fit them all,
        `GroupBroken` if a rank is lost; `abandon` then undoes the attempt.
        """
        if not self._plans and isinstance(self._planner, Replayed):
            # Check now: failing at that step would waste everything computed before it.
            self._planner.plans(step, [self._order.size(n) for n in range(step, step + most)])
        count = min(self._settings.sync_every, most) if self._rounds else 1
        batches = [self._order.batch(number) for number in range(step, step + count)]
        plans = self._planner.plans(step, [len(batch) for batch in batches])
        if self._rounds:
            result = self._round(self._rounds, step, batches, plans, flags)
        else:
            result = self._step(step, batches[0], plans[0], flags)
        self._update_planner(result)
        return result

    def abandon(self) -> None:
        """Undo the changes of an interrupted step or round."""
        self._work.abandon()
        self._learner.abandon()
        if self._rounds and self._in_round:
            self._rounds.undo()
            self._learner.rewind()
        self._in_round = False

    def regroup(self, measured: Measured, source: int) -> None:
        """Divide rows among the members of a new group, as the rank `source` knows their speeds.

        All of them take part. The next plans are recorded even if they are as before, since not
        every rank knows those.
        """
        regroup_planner(self._planner, self._settings, measured, self._world, source)
        self._plans = ()

    def _step(self, step: int, batch: np.ndarray, plan: Plan, flags: Flags) -> StepResult:
        """Take one step together: this rank's gradients, the sum of all, the optimizer."""
        rate = self._learner.rate
        own = self._own_rows(batch, plan)
        most = plan.micro_batch[self._world.rank]
        counts = self._complete(step, own, most, self._counts(batch), self._of_all)
        computed = self._gradients(step, own, most, counts, plan.turns)
        self._work.wait()
        summed = self._exchange.run(
            flags(),
            loss=computed.loss,
            tokens=computed.tokens,
            # The others wait for a slow rank's optimizer too.
            compute_seconds=self._updating + computed.seconds,
            wait_seconds=computed.waited,
            squares=computed.squares or 0.0,
            **self._sensors(),
            micro_batch=computed.micro_batch,
            labels=self._counts(own).weight,
            **dict(zip(self._objective.sums, computed.sums, strict=True)),
        )
        members = [batch[plan.slice_of(rank)] for rank in self._world.members]
        labels = sum(self._counts(rows).weight for rows in members)
        self._check(step, "tokens", summed.tokens, int(self._rows.tokens[batch].sum()))
        self._check(step, self._objective.unit, summed.labels, labels)
        in_parts = computed.squares is not None
        self._work.begin(OPTIMIZER)
        started, waited = time.perf_counter(), self._exchange.waited
        norm = self._learner.propose(plan.rows, sum(summed.squares) if in_parts else None)
        proposing = time.perf_counter() - started - (self._exchange.waited - waited)
        skipped = not math.isfinite(norm)
        by_scaler = skipped and self._learner.may_lower_scale
        bad: list[str] = []
        if skipped and not by_scaler:
            bad = self._bad_rows(own, counts, plan.row_by_row().turns)
            bad = self._of_all(bad)
        # From here on the rank is by itself, and the step is done.
        self._energy.settle()
        started = time.perf_counter()
        self._learner.commit()
        self._updating = proposing + time.perf_counter() - started
        self._learner.advance_schedule()
        self._note(step, (plan,))
        # Micro-batches are smaller than planned on a rank that ran out of memory.
        self._note(step, (replace(plan, micro_batch=self._computed_sizes(plan, summed)),))
        watched = self._watched(summed, counts)
        return StepResult((plan,), summed, rate, norm, int(skipped), by_scaler, bad, watched)

    def _round(
        self,
        round_: rounds.Rounds,
        step: int,
        batches: Sequence[np.ndarray],
        plans: Plans,
        flags: Flags,
    ) -> StepResult:
        """Take local steps up to the next synchronisation, then average over all ranks."""
        local = rounds.Local()
        round_.begin()
        self._learner.mark()
        self._in_round = True
        for number, (batch, plan) in enumerate(zip(batches, plans, strict=True), step):
            rate = self._learner.rate
            self._local_step(number, batch, plan, local)
            self._learner.advance_schedule()
        self._work.wait()
        sums = dict(zip(self._objective.sums, local.sums, strict=False))
        summed = round_.propose(local, flags(), **self._sensors(), **sums)
        skipped = sum(summed.skipped)
        if not skipped:
            self._check(step + len(plans) - 1, self._objective.unit, summed.labels, local.of_all)
        bad = self._of_all(local.bad) if skipped else []
        # From here on the rank is by itself, and the round is done.
        self._energy.settle()
        round_.commit(local, summed)
        self._in_round = False
        self._note(step, plans)
        watched = self._watched(summed, self._counts(np.concatenate(batches)))
        norm = rounds.norm_of_all(summed)
        return StepResult(plans, summed, rate, norm, skipped, bad=bad, watched=watched)

    def _check(self, step: int, what: str, counts: Sequence[int], planned: int) -> None:
        """Check that the ranks' `counts` up to 0-based `step` add up to what this rank planned.

        Raises `HearthError` if not: the gradient would have a wrong scale, or be of other rows.
        """
        found = sum(counts)
        if not math.isclose(found, planned, rel_tol=_ROUNDING):
            each = zip(self._world.members, (counts[n] for n in self._world.members), strict=True)
            by_rank = ", ".join(f"{self._world.layout[rank]} {count}" for rank, count in each)
            raise HearthError(
                f"step {step + 1}: the ranks computed {found} {what} ({by_rank}), but the plan of "
                f"{self._world.node} has {planned}: their rows are not the same, so the step was "
                "not taken. Delete data/prepared in each node's workspace, then resume the run; if "
                "it happens again, test the memory of these machines"
            )

    def _of_all(self, own: list[T]) -> list[T]:
        """Return the findings of all ranks, such as rows with a non-finite gradient."""
        self._work.wait()
        return [each for found in self._world.gather(own) for each in found]

    def _computed_sizes(self, plan: Plan, summed: StepSum) -> tuple[int, ...]:
        """Return the micro-batch of each rank as it was computed; of an absent rank, as planned."""
        present = set(self._world.members)
        sizes = zip(plan.micro_batch, summed.micro_batch, strict=True)
        return tuple(
            had if rank in present else planned for rank, (planned, had) in enumerate(sizes)
        )

    def _sensors(self) -> dict[str, float]:
        """Return this rank's peak memory, temperature, energy and disk, to report to the others."""
        device = self._world.device
        return {
            "peak_memory_mib": peak_mib(device),
            "celsius": celsius(device),
            "joules": self._energy.pending(),
            "metered": self._energy.metered,
            "disk": self._disk.state,
        }

    def _local_step(self, step: int, batch: np.ndarray, plan: Plan, local: rounds.Local) -> None:
        """Take one step on this rank's rows alone, and add its results to `local`."""
        own = self._own_rows(batch, plan)
        of_all, counts = self._counts(batch).weight, self._counts(own)
        labels = counts.weight
        most = local.begin_step(plan.micro_batch[self._world.rank], of_all)
        if not labels:
            return
        counts = self._complete(step, own, most, counts, list)
        computed = self._gradients(step, own, most, counts)
        self._work.begin(OPTIMIZER)
        started = time.perf_counter()
        norm = self._learner.propose(plan.rows)
        self._learner.commit()
        updating = time.perf_counter() - started
        computed = replace(computed, seconds=computed.seconds + updating)
        local.end_step(computed, labels, of_all, norm)
        if not math.isfinite(norm):
            local.bad += self._bad_rows(own, counts)

    def _note(self, step: int, plans: Plans) -> None:
        """Report the plans that begin with this step to `on_plans`, and store them."""
        self._on_plans(step, self._plans, plans)
        self._plans = plans

    def _counts(self, rows: np.ndarray) -> StepCounts:
        """Return the objective's counts of these rows."""
        return self._objective.counts(self._rows, rows)

    def _watched(self, summed: StepSum, counts: StepCounts) -> dict[str, float]:
        """Return the means of the objective's sums over all ranks."""
        sums = [getattr(summed, name) for name in self._objective.sums]
        return self._objective.watched(sums, counts)

    def _complete(
        self,
        step: int,
        own: np.ndarray,
        most: int,
        counts: StepCounts,
        of_all: Callable[[list[float]], list[float]],
    ) -> StepCounts:
        """Return the step's `counts`, complete (see `Objective.complete`)."""
        self._work.step = step + 1
        rows, say = self._rows, self._world.say
        return self._objective.complete(
            counts, rows, own, lambda: self._compute.log_probs(rows, own, most, say, True), of_all
        )

    def _own_rows(self, batch: np.ndarray, plan: Plan) -> np.ndarray:
        """Return the numbers of this rank's rows of `batch`."""
        own = batch[plan.slice_of(self._world.rank)]
        if not self._settings.packing:  # sorted by length, so that there is little padding
            own = own[np.argsort(self._rows.tokens[own], kind="stable")]
        return own

    def _gradients(
        self, step: int, own: np.ndarray, most: int, counts: StepCounts, turns: int = 0
    ) -> Computed:
        """Compute the gradients of this rank's rows."""
        self._work.step = step + 1

        def seed_of(row: int) -> int:  # the same in whichever rank computes the row
            return hash((self._settings.seed, step, row))

        return self._compute.gradients(
            own, most, counts, seed_of=seed_of, say=self._world.say, turns=turns
        )

    def _bad_rows(self, own: np.ndarray, counts: StepCounts, turns: int = 0) -> list[str]:
        """Return file and line of each row of `own` with a non-finite gradient."""
        bad = self._compute.not_finite(own, counts, turns)
        return [source for row in bad for source in self._rows.sources(row)]

    def _update_planner(self, result: StepResult) -> None:
        """Pass each rank's speed and micro-batch limit, and the exchange, to the planner."""
        summed, planned = result.summed, result.plans[-1].micro_batch
        for rank in self._world.members:
            if summed.micro_batch[rank] < planned[rank]:
                self._planner.fits_no_more_than(rank, summed.micro_batch[rank])
        exchange = summed.exchange_seconds(self._world.members)
        self._planner.observe(result.plans, summed.tokens, summed.compute_seconds, exchange)
