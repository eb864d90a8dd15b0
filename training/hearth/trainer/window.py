"""The steps since the last line of metrics, summed up."""

from __future__ import annotations

from typing import Any

from hearth.plan.split import Plan
from hearth.trainer.exchange import StepSum


class LogWindow:
    """The steps since the last line of metrics."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._sums: list[StepSum] = []
        self._plans: list[Plan] = []
        self._skipped = self._scaler_skipped = 0

    def add(
        self, summed: StepSum, plan: Plan, seconds: float, skipped: bool, by_scaler: bool
    ) -> None:
        """Add one step that took `seconds`, under `plan`.

        `skipped` says whether its gradient was not finite; `by_scaler` that nothing is wrong with
        that, since the loss scaler of fp16 was only looking for its scale.
        """
        self._skipped += skipped and not by_scaler
        self._scaler_skipped += skipped and by_scaler
        self.seconds.append(seconds)
        self._sums.append(summed)
        self._plans.append(plan)

    def record(self) -> dict[str, Any]:
        """Return means of loss and seconds, sums of tokens, and peaks of memory."""
        steps, seconds = len(self._sums), sum(self.seconds)

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
            "rows_by_rank": [
                sum(rows) for rows in zip(*(plan.rows for plan in self._plans), strict=True)
            ],
        }
