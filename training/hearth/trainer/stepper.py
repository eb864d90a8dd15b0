"""One rank's part of a step that all take together, or of a round of steps by itself.

Why any split of a global batch gives the gradient of one big GPU: let the batch have N labelled
tokens with losses l_i. Each rank computes, for its rows, the sum of its l_i / N; the gradients of
these sums are added over the ranks, and the gradient of a sum is the sum of the gradients:

    sum over ranks of  grad( sum over its tokens of l_i / N )  =  grad( mean of all l_i )

N is known to every rank beforehand from the token index, so nothing needs to be asked. A rank
without rows adds zero. (Where ranks learn by themselves for some steps, this does not hold: see
`rounds`.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from hearth.config import Settings
from hearth.data import Rows
from hearth.heat import celsius
from hearth.memory import peak_mib
from hearth.plan.order import Order
from hearth.plan.planner import Planner
from hearth.plan.split import Plan
from hearth.trainer import rounds
from hearth.trainer.compute import Compute, Computed
from hearth.trainer.exchange import Exchange
from hearth.trainer.learner import Learner
from hearth.trainer.window import Taken
from hearth.world import World


class Stepper:
    """Takes the steps of a run, whichever the planner says are this rank's rows.

    Args:
        flags: what this rank asks all to do after the step, by the names in `StepSum`.
        on_plan: is told of a plan that differs from the one before it, and of its 0-based step;
            again after the step if a rank computed it in smaller micro-batches than planned.
        in_rounds: how ranks that learn by themselves come together again; None where they do not.

    Attributes:
        plan: that of the last step, as it was computed; None before the first.
    """

    def __init__(
        self,
        settings: Settings,
        rows: Rows,
        order: Order,
        world: World,
        planner: Planner,
        compute: Compute,
        exchange: Exchange,
        learner: Learner,
        flags: Callable[[], Mapping[str, bool]],
        on_plan: Callable[[int, Plan | None, Plan], None],
        in_rounds: rounds.Rounds | None,
    ) -> None:
        self._settings, self._rows, self._order, self._world = settings, rows, order, world
        self._planner, self._compute, self._exchange = planner, compute, exchange
        self._learner, self._flags, self._on_plan = learner, flags, on_plan
        self._rounds = in_rounds
        self.plan: Plan | None = None

    def take(self, step: int, most: int) -> Taken:
        """Take the 0-based `step`, or a round of at most `most` that begins with it."""
        taken = self._round(self._rounds, step, most) if self._rounds else self._step(step)
        self._tell_planner(taken)
        return taken

    def _step(self, step: int) -> Taken:
        """Take one step together: this rank's gradients, the sum of all, the optimizer."""
        rate = self._learner.rate
        batch = self._order.batch(step)
        plan = self._planned(step, len(batch))
        own = self._own_rows(batch, plan)
        denominator = int(self._rows.label_tokens[batch].sum())
        most = plan.micro_batch[self._world.rank]
        computed = self._gradients(step, own, most, denominator, plan.turns)
        summed = self._exchange.run(
            loss=computed.loss,
            **self._flags(),
            tokens=int(self._rows.tokens[own].sum()),
            compute_seconds=computed.seconds,
            **self._sensed(),
            micro_batch=computed.micro_batch,
        )
        self._note_smaller(step, plan, tuple(summed.micro_batch))
        norm = self._learner.update()
        skipped = not math.isfinite(norm)
        by_scaler = skipped and self._learner.seeks_scale
        bad = []
        if skipped and not by_scaler:
            bad = self._bad_rows(own, denominator, plan.row_by_row().turns)
        self._learner.use_up_rate()
        return Taken((plan,), summed, rate, norm, int(skipped), by_scaler, bad)

    def _round(self, round_: rounds.Rounds, step: int, most: int) -> Taken:
        """Take steps by itself up to the next synchronisation, then average what all learned."""
        local = rounds.Local()
        round_.begin()
        for number in range(step, step + min(self._settings.sync_every, most)):
            rate = self._learner.rate
            self._local_step(number, local)
            self._learner.use_up_rate()
        summed = round_.end(local, **self._flags(), **self._sensed())
        skipped = sum(summed.skipped)
        return Taken(local.plans, summed, rate, rounds.norm_of_all(summed), skipped, bad=local.bad)

    def _sensed(self) -> dict[str, float]:
        """Return what the others are told of this rank's memory and heat."""
        device = self._world.device
        return {"peak_memory_mib": peak_mib(device), "celsius": celsius(device)}

    def _local_step(self, step: int, local: rounds.Local) -> None:
        """Take one step with this rank's rows alone, and add what came of it to `local`."""
        batch = self._order.batch(step)
        plan = self._planned(step, len(batch))
        own = self._own_rows(batch, plan)
        of_all, labels = (int(self._rows.label_tokens[rows].sum()) for rows in (batch, own))
        most = local.begin_step(plan, self._world.rank, of_all)
        if not labels:
            return
        computed = self._gradients(step, own, most, labels)
        norm = self._learner.update()
        local.end_step(computed, int(self._rows.tokens[own].sum()), labels, of_all, norm)
        if not math.isfinite(norm):
            local.bad += self._bad_rows(own, labels)

    def _planned(self, step: int, rows: int) -> Plan:
        """Return the plan of this step, of so many rows."""
        plan, before = self._planner.plan(step, rows), self.plan
        self.plan = plan
        if plan != before:
            self._on_plan(step, before, plan)
        return plan

    def _note_smaller(self, step: int, plan: Plan, computed: tuple[int, ...]) -> None:
        """Tell of the micro-batches that were computed where memory did not hold the planned."""
        if computed != plan.micro_batch:
            self.plan = replace(plan, micro_batch=computed)
            self._on_plan(step, plan, self.plan)

    def _own_rows(self, batch: np.ndarray, plan: Plan) -> np.ndarray:
        """Return the numbers of this rank's rows of `batch`."""
        own = batch[plan.slice_of(self._world.rank)]
        if not self._settings.packing:  # rows of like length together, so that little is padding
            own = own[np.argsort(self._rows.tokens[own], kind="stable")]
        return own

    def _gradients(
        self, step: int, own: np.ndarray, most: int, denominator: int, turns: int = 0
    ) -> Computed:
        """Compute the gradients of this rank's rows."""

        def seed_of(first_row: int) -> int:  # the same in whichever rank computes the micro-batch
            return hash((self._settings.seed, step, first_row))

        return self._compute.gradients(
            own,
            most,
            denominator,
            seed_of=seed_of,
            say=lambda words: print(f"{self._world.node}: {words}", flush=True),
            turns=turns,
        )

    def _bad_rows(self, own: np.ndarray, denominator: int, turns: int = 0) -> list[str]:
        """Return, as file and line, those of the rows `own` whose gradients are not finite."""
        bad = self._compute.not_finite(own, denominator, turns)
        return [source for row in bad for source in self._rows.sources(row)]

    def _tell_planner(self, taken: Taken) -> None:
        """Tell the planner how fast the ranks were, and what their memory holds."""
        summed, steps = taken.summed, len(taken.plans)
        plan = statistics.mode(taken.plans)  # all but that of an epoch's last, short step
        for rank, (had, planned) in enumerate(
            zip(summed.micro_batch, plan.micro_batch, strict=True)
        ):
            if had < planned:
                self._planner.fits_no_more_than(rank, had)
        tokens = [count / steps for count in summed.tokens]
        self._planner.observe(plan, tokens, [each / steps for each in summed.compute_seconds])
