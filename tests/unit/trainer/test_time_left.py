"""The time left, as a run reports it with each step."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from hearth.record.events import StepEvent
from hearth.trainer.reports import Reports

STEPS = 1000


class StandInTelemetry:
    """Keeps the seconds left of each record."""

    def __init__(self) -> None:
        self.left: list[float] = []

    def record(self, event: StepEvent) -> None:
        """Keep what a step says."""
        self.left.append(event.eta_seconds)

    def say(self, text: str) -> None:
        """Print nothing."""


def window(seconds: float) -> SimpleNamespace:
    """Return the window of a step of one rank that took so long."""
    by_rank = {
        f"{name}_by_rank": [1.0]
        for name in ("tokens_per_second", "compute_seconds", "wait_seconds")
    }
    counts = {"skipped": 0, "scaler_skipped": 0, "loss": 1.0, "tokens_per_second": 1.0}
    return SimpleNamespace(seconds=[seconds], record=lambda: by_rank | counts)


@pytest.mark.parametrize("after", [12, 200])
@pytest.mark.parametrize(("was", "becomes"), [(1.0, 6.0), (6.0, 1.0)])
def test_the_time_left_follows_within_ten_steps_and_no_single_step(was, becomes, after):
    told = StandInTelemetry()
    world = SimpleNamespace(layout=("desk",), nodes=("desk",))
    order = SimpleNamespace(steps_per_epoch=10)
    facts = SimpleNamespace(order=order, steps=STEPS, placement=None)
    context, learning = SimpleNamespace(run=None, world=world), SimpleNamespace(rounds=None)
    reports = Reports(context, facts, learning, None, told)
    last = SimpleNamespace(rate=0.1, norm=1.0)
    for step in range(1, after + 11):
        seconds = 300.0 if step == 5 else was if step <= after else becomes
        reports.step(step, window(seconds), last, None)
    for step in range(2, after + 1):
        assert told.left[step - 1] == pytest.approx(was * (STEPS - step), rel=0.01)
    assert told.left[-1] == pytest.approx(becomes * (STEPS - after - 10), rel=0.01)
