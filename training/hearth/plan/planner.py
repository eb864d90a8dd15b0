"""Plans from fixed shares or from the record of an earlier run.

Plans by measured speed are in `follow`.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from hearth.base.errors import HearthError
from hearth.plan.placement import Placement
from hearth.plan.speed import Speed
from hearth.plan.split import Plan, Plans, by_shares


@dataclass(frozen=True)
class Known:
    """The knowledge of a planner that a rank which joins the group needs. All by rank.

    Attributes:
        speeds: measured speed, within the limits.
        slowness: last known time as a multiple of the measured one.
        limits: most rows of a micro-batch that fit, of ranks that ran out of memory.
    """

    speeds: Mapping[int, Speed] = field(default_factory=dict)
    slowness: Mapping[int, float] = field(default_factory=dict)
    limits: Mapping[int, int] = field(default_factory=dict)


class Planner(Protocol):
    """Interface the trainer uses around each exchange; every rank gets the same answers.

    Plans are of the whole layout of the run: a rank that is absent from the group has 0 rows.
    """

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return the plans of steps of `sizes` rows, from 0-based `step` to the exchange."""

    def share(self, rows: int) -> Plan:
        """Return the division of `rows` that are only evaluated, not trained on."""

    def observe(
        self,
        plans: Plans,
        tokens: Sequence[int],
        compute_seconds: Sequence[float],
        exchange_seconds: float = 0.0,
    ) -> None:
        """Record each rank's compute time and tokens in `plans`; ignored by default.

        `exchange_seconds` are those of the exchange before, without waiting for slower ranks.
        """

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Plan from now on with micro-batches of at most `size` rows on `rank`.

        Ignored by default: recorded plans hold sizes that fit.
        """

    def regroup(
        self, members: Sequence[int], speeds: Mapping[int, Speed], slowness: Mapping[int, float]
    ) -> None:
        """Plan from now on for the ranks `members`, at least one, ascending; the others have left.

        `speeds` and `slowness` are as in `Known`, of absent ranks too; the speed of every member is
        there. With the same arguments all planners of a run make the same plans, whatever each of
        them has observed before.
        """

    @property
    def known(self) -> Known:
        """The knowledge of this planner of all ranks, absent ones included; empty by default."""
        return Known()


class Fixed(Planner):
    """The same shares in every step.

    Args:
        shares: of each rank of the layout. If all members have a share of 0, they get equal ones.
        micro_batch: of each rank; None is its fastest size (`regroup` has its
            speed), and 1 until then.
        together: as in `Plan`.
    """

    def __init__(
        self, shares: Sequence[float], micro_batch: Sequence[int | None], together: bool = False
    ) -> None:
        self._all_shares = tuple(shares)
        self._wanted = tuple(micro_batch)
        self._together = together
        self._limits: dict[int, int] = {}
        self.regroup(range(len(shares)), {}, {})

    def regroup(
        self, members: Sequence[int], speeds: Mapping[int, Speed], slowness: Mapping[int, float]
    ) -> None:
        """Divide from now on among `members`, by their shares; see `Planner.regroup`."""
        self._speeds = dict(speeds)
        self._shares = _of_members(self._all_shares, members)
        sizes = (
            wanted or (speeds[rank].micro_batch if rank in speeds else 1)
            for rank, wanted in enumerate(self._wanted)
        )
        self._micro_batch = [
            min(size, self._limits.get(rank, size)) for rank, size in enumerate(sizes)
        ]

    @property
    def known(self) -> Known:
        """The speeds given last, and the limits."""
        return Known(self._speeds, limits=dict(self._limits))

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return the plans by fixed shares."""
        return tuple(self.share(rows) for rows in sizes)

    def share(self, rows: int) -> Plan:
        """Return the plan by fixed shares."""
        return Plan(by_shares(rows, self._shares), tuple(self._micro_batch), self._together)

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Limit the micro-batches of `rank` to `size` rows."""
        self._limits[rank] = min(size, self._limits.get(rank, size))
        self._micro_batch[rank] = min(size, self._micro_batch[rank])


@dataclass(frozen=True)
class RecordedPlans:
    """The plans of an earlier run.

    Attributes:
        plans: each with its first 0-based step, in order.
        steps: number of steps of that run.
    """

    plans: tuple[tuple[int, Plan], ...]
    steps: int


class Replayed(Planner):
    """The plans of an earlier run, step by step.

    Args:
        run: its name, for messages.
        plans: each with its first 0-based step, in order; at least one, except on a
            rank that joins a group and gets the others' by `repeat`.
        ranks: current number of ranks, absent ones included.
        steps: number of steps of the earlier run; later steps reuse its last plan, if it fits.

    Ranks that were absent from the earlier run's group have 0 rows in its plans, and stay idle. The
    rows of a rank that is absent now are divided among the others in proportion to their own.

    Attributes:
        record: the repeated record.

    Raises `HearthError` if the earlier run began with another number of ranks.
    """

    def __init__(self, run: str, plans: Sequence[tuple[int, Plan]], ranks: int, steps: int) -> None:
        self._run, self._ranks = run, ranks
        self.repeat(RecordedPlans(tuple(plans), steps))
        self._members: Sequence[int] = range(ranks)

    def repeat(self, record: RecordedPlans) -> None:
        """Play `record` from now on; raises as the constructor."""
        began_with = len(record.plans[0][1].rows) if record.plans else self._ranks
        if began_with != self._ranks:
            raise HearthError(
                f"replay: run '{self._run}' began with {began_with} ranks and this run has "
                f"{self._ranks}; take nodes with {began_with} ranks, or leave replay out"
            )
        self.record = record
        self._steps = record.steps
        self._from = [step for step, _ in record.plans]
        self._plans = [plan for _, plan in record.plans]
        self._regrouped: dict[int, Plan] = {}

    def regroup(
        self, members: Sequence[int], speeds: Mapping[int, Speed], slowness: Mapping[int, float]
    ) -> None:
        """Give the rows of absent ranks to `members` from now on; see `Planner.regroup`."""
        self._members = tuple(members)
        self._regrouped = {}

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return the plans that applied in these steps, for the members of the group.

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
        if at not in self._regrouped:
            self._regrouped[at] = self._without_absent(plan)
        return self._regrouped[at]

    def _without_absent(self, plan: Plan) -> Plan:
        """Return `plan` with the rows of absent ranks divided among the members."""
        kept = tuple(rows if rank in self._members else 0 for rank, rows in enumerate(plan.rows))
        shares = _of_members(plan.rows, self._members)
        given = by_shares(sum(plan.rows) - sum(kept), shares)
        rows = tuple(own + more for own, more in zip(kept, given, strict=True))
        return replace(plan, rows=rows)

    def share(self, rows: int) -> Plan:
        """Return the rows in proportion to those of the first step."""
        first = self._plans[0]
        return replace(first, rows=by_shares(rows, _of_members(first.rows, self._members)))


class Staged(Planner):
    """The planner of a pipeline on `ranks` ranks, with micro-batches of at most `micro_batch` rows.

    All stages compute the same micro-batches: what does not fit one of them fits none.
    """

    def __init__(self, placement: Placement, ranks: int, micro_batch: int) -> None:
        self._takes_part = [placement.position(rank) is not None for rank in range(ranks)]
        self._micro_batch = micro_batch

    def plans(self, step: int, sizes: Sequence[int]) -> Plans:
        """Return all rows of each step on every stage."""
        return tuple(self.share(rows) for rows in sizes)

    def share(self, rows: int) -> Plan:
        """Return all `rows` on every stage."""
        shares = tuple(rows if takes_part else 0 for takes_part in self._takes_part)
        return Plan(shares, (self._micro_batch,) * len(shares), whole=True)

    def fits_no_more_than(self, rank: int, size: int) -> None:
        """Limit the micro-batches of all stages to `size` rows."""
        self._micro_batch = min(size, self._micro_batch)

    def regroup(
        self, members: Sequence[int], speeds: Mapping[int, Speed], slowness: Mapping[int, float]
    ) -> None:
        """Keep the plans: stages cannot be spared."""


def _of_members(shares: Sequence[float], members: Sequence[int]) -> tuple[float, ...]:
    """Return `shares` with 0 for each rank that is not in `members`.

    Members whose shares are all 0 get equal ones: the rows must be computed.
    """
    found = tuple(share if rank in members else 0 for rank, share in enumerate(shares))
    if any(found):
        return found
    return tuple(float(rank in members) for rank in range(len(shares)))
