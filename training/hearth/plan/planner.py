"""Plans from fixed shares or from the record of an earlier run.

Plans by measured speed are in `follow`.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from hearth.base.errors import HearthError
from hearth.plan.split import Plan, Plans, by_shares


class Planner(Protocol):
    """Interface the trainer uses around each exchange; every rank gets the same answers."""

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return the plans of steps of `sizes` rows, from 0-based `step` to the exchange."""

    def share(self, rows: int) -> Plan:
        """Return the division of `rows` that are only evaluated, not trained on."""

    def observe(
        self, plans: Plans, tokens: Sequence[int], compute_seconds: Sequence[float]
    ) -> None:
        """Record each rank's compute time and tokens in `plans`; ignored by default."""

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Plan from now on with micro-batches of at most `size` rows on `rank`.

        Ignored by default: recorded plans hold sizes that fit.
        """


class Fixed(Planner):
    """The same shares in every step; `together` as in `Plan`."""

    def __init__(
        self, shares: Sequence[float], micro_batch: Sequence[int], together: bool = False
    ) -> None:
        self._shares = tuple(shares)
        self._micro_batch = list(micro_batch)
        self._together = together

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return the plans by fixed shares."""
        return tuple(self.share(rows) for rows in sizes)

    def share(self, rows: int) -> Plan:
        """Return the plan by fixed shares."""
        return Plan(by_shares(rows, self._shares), tuple(self._micro_batch), self._together)

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Limit the micro-batches of `rank` to `size` rows."""
        self._micro_batch[rank] = min(self._micro_batch[rank], size)


class Replayed(Planner):
    """The plans of an earlier run, step by step.

    Args:
        run: its name, for messages.
        plans: each with the 0-based step from which it applied, in order; at least one.
        ranks: current number of ranks.
        steps: number of steps of the earlier run; later steps reuse its last plan, if it fits.

    Raises `HearthError` if the earlier run began with another number of ranks.
    """

    def __init__(self, run: str, plans: Sequence[tuple[int, Plan]], ranks: int, steps: int) -> None:
        began_with = len(plans[0][1].rows)
        if began_with != ranks:
            raise HearthError(
                f"replay: run '{run}' began with {began_with} ranks and this run has {ranks}; take "
                f"nodes with {began_with} ranks, or leave replay out"
            )
        self._run, self._ranks, self._steps = run, ranks, steps
        self._from = [step for step, _ in plans]
        self._plans = [plan for _, plan in plans]

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return the plans that applied in these steps.

        Raises `HearthError` if there was none, or it was for another number of rows or ranks.
        """
        return tuple(self._plan(number, rows) for number, rows in enumerate(sizes, step))

    def _plan(self, step: int, rows: int) -> Plan:
        """Return the plan that applied in `step`; raises as `plans`."""
        at = bisect.bisect_right(self._from, step) - 1
        if at < 0:
            raise HearthError(f"replay: run '{self._run}' has no record of step {step + 1}")
        plan = self._plans[at]
        if len(plan.rows) != self._ranks:
            raise HearthError(
                f"replay: step {step + 1} of run '{self._run}' had {len(plan.rows)} ranks and this "
                f"run has {self._ranks}; end before it with max_steps={step}, or leave replay out"
            )
        if sum(plan.rows) != rows:
            beyond = step >= self._steps
            raise HearthError(
                f"replay: the plan for step {step + 1} in run '{self._run}', which has "
                f"{self._steps} steps, is of {sum(plan.rows)} rows and this step has {rows}; take "
                + (f"max_steps={self._steps}" if beyond else "the same global_batch and data")
            )
        return plan

    def share(self, rows: int) -> Plan:
        """Return the rows in proportion to those of the first step."""
        first = self._plans[0]
        return replace(first, rows=by_shares(rows, first.rows))
