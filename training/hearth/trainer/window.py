"""What came of a step, and the steps since the last line of metrics, summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hearth.plan.split import Plan, Plans
from hearth.trainer.exchange import StepSum


@dataclass(frozen=True)
class Taken:
    """What came of a step, or of a round of local ones.

    Attributes:
        plans: of each of the steps.
        rate: the learning rate of the last of them.
        norm: of the gradient; of a round, the mean norm of the local ones.
        skipped: how many gradients were not finite.
        by_scaler: whether nothing is wrong with that, since the loss scaler of fp16 was only
            looking for its scale.
        bad: those of this rank's rows that were not finite by themselves.
    """

    plans: Plans
    summed: StepSum
    rate: float
    norm: float
    skipped: int = 0
    by_scaler: bool = False
    bad: Sequence[str] = ()


class LogWindow:
    """The steps since the last line of metrics."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._sums: list[StepSum] = []
        self._plans: list[Plan] = []
        self._skipped = self._scaler_skipped = 0

    def add(self, taken: Taken, seconds: float) -> None:
        """Add a step, or a round of them, that took `seconds`."""
        self._skipped += 0 if taken.by_scaler else taken.skipped
        self._scaler_skipped += taken.skipped if taken.by_scaler else 0
        steps = len(taken.plans)
        self.seconds += [seconds / steps] * steps
        self._sums.append(taken.summed)
        self._plans += taken.plans

    def record(self) -> dict[str, Any]:
        """Return means of loss and seconds a step, sums of tokens, peaks of memory and heat."""
        steps, seconds = len(self._plans), sum(self.seconds)

        def over_steps(name: str) -> list[tuple[float, ...]]:
            return list(zip(*(getattr(summed, name) for summed in self._sums), strict=True))

        tokens = [sum(counts) for counts in over_steps("tokens")]
        compute = [sum(times) for times in over_steps("compute_seconds")]
        return {
            "loss": sum(summed.loss for summed in self._sums) / steps,
            "skipped": self._skipped,
            "scaler_skipped": self._scaler_skipped,
            "tokens": sum(tokens),
            # Each rank's part of the whole; how fast it is by itself stands in the next line.
            "tokens_per_second": round(sum(tokens) / seconds, 1),
            "tokens_per_second_by_rank": [round(count / seconds, 1) for count in tokens],
            "own_tokens_per_second_by_rank": [
                round(count / time, 1) if count else 0.0
                for count, time in zip(tokens, compute, strict=True)
            ],
            "compute_seconds_by_rank": [round(time / steps, 4) for time in compute],
            # In the exchange of the step before: this one's is not over when it is reported.
            "wait_seconds_by_rank": [
                round(sum(times) / steps, 4) for times in over_steps("wait_seconds")
            ],
            "peak_memory_mib_by_rank": [
                round(max(peaks)) for peaks in over_steps("peak_memory_mib")
            ],
            "celsius_by_rank": [max(heat) or None for heat in over_steps("celsius")],
            "rows_by_rank": [
                sum(rows) for rows in zip(*(plan.rows for plan in self._plans), strict=True)
            ],
        }
