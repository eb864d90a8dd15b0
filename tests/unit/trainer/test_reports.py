"""A run's reports: the time left, the line of a step, a perplexity that is no number."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from support.facts import assert_names

from hearth.config import Settings
from hearth.record.events import StepEvent
from hearth.trainer.evaluation import perplexity_of
from hearth.trainer.reports import Reports
from hearth.trainer.telemetry import step_line

STEPS = 1000


class StandInTelemetry:
    """Keeps the seconds left of each record, and what is said."""

    def __init__(self) -> None:
        self.left: list[float] = []
        self.said: list[str] = []

    def record(self, event: StepEvent) -> None:
        """Keep what a step says."""
        self.left.append(event.eta_seconds)

    def say(self, text: str) -> None:
        """Keep a line."""
        self.said.append(text)


def reports_to(told: StandInTelemetry, run: object = None) -> Reports:
    """Return the reports of a run of one rank."""
    world = SimpleNamespace(layout=("desk",), nodes=("desk",))
    order = SimpleNamespace(steps_per_epoch=10)
    facts = SimpleNamespace(order=order, steps=STEPS, placement=None)
    context, learning = SimpleNamespace(run=run, world=world), SimpleNamespace(rounds=None)
    return Reports(context, facts, learning, None, told)


LAST = SimpleNamespace(rate=0.1, norm=1.0)


def window(seconds: float, **more: float) -> SimpleNamespace:
    """Return the window of a step of one rank that took so long."""
    by_rank = {
        f"{name}_by_rank": [1.0]
        for name in ("tokens_per_second", "compute_seconds", "wait_seconds")
    }
    counts = {"skipped": 0, "scaler_skipped": 0, "loss": 1.0, "tokens_per_second": 1.0}
    return SimpleNamespace(seconds=[seconds], record=lambda: by_rank | counts | more)


@pytest.mark.parametrize("after", [12, 200])
@pytest.mark.parametrize(("was", "becomes"), [(1.0, 6.0), (6.0, 1.0)])
def test_the_time_left_follows_within_ten_steps_and_no_single_step(was, becomes, after):
    told = StandInTelemetry()
    reports = reports_to(told)
    for step in range(1, after + 11):
        seconds = 300.0 if step == 5 else was if step <= after else becomes
        reports.step(step, window(seconds), LAST, None)
    for step in range(2, after + 1):
        assert told.left[step - 1] == pytest.approx(was * (STEPS - step), rel=0.01)
    assert told.left[-1] == pytest.approx(becomes * (STEPS - after - 10), rel=0.01)


@pytest.mark.parametrize(
    ("chosen", "rejected", "falls"), [(-5.0, -9.0, True), (-1.0, -9.0, False), (2.0, -9.0, False)]
)
def test_it_is_said_once_that_the_chosen_answers_become_less_likely_too(chosen, rejected, falls):
    told = StandInTelemetry()
    settings = Settings(model="any", objective="dpo", beta=0.5)
    reports = reports_to(told, SimpleNamespace(settings=settings))
    judged = {"chosen_reward": 0.5 * chosen, "rejected_reward": 0.5 * rejected}
    for step in range(1, 41):
        reports.step(step, window(1.0, reward_accuracy=1.0, **judged), LAST, None)
    lines = [each for each in told.said if "sft_weight" in each]
    assert len(lines) == int(falls)


LAYOUT = ("desk", "laptop", "laptop", "oldbox")


def line(*speeds: float, present: tuple[str, ...] | None = None, **more: object) -> str:
    record = {
        "step": 12,
        "steps": 60,
        "loss": 1.25,
        "tokens_per_second": sum(speeds),
        "tokens_per_second_by_rank": speeds,
        "compute_seconds_by_rank": [1.0 if speed else 0.0 for speed in speeds],
        "wait_seconds_by_rank": [0.1] * len(speeds),
        "eta_seconds": 125.0,
        "skipped": 0,
        "scaler_skipped": 0,
        **more,
    }
    return step_line(record, LAYOUT, present)


def test_a_step_has_the_share_of_each_node():
    said = line(80, 30, 40, 10)
    assert_names(said, "step 12/60", "1.2500", "160 tokens/s (desk 80, laptop 70, oldbox 10)")
    assert said.endswith("2 min 5 s left")
    assert line(80, 30, 40, 10, present=("desk", "laptop", "oldbox")) == said


def test_a_node_that_is_away_has_no_share_and_is_named():
    said = line(80, 0, 0, 10, present=("desk", "oldbox"))
    assert "(desk 80, oldbox 10)" in said
    assert said.endswith("left  without laptop")


def test_a_node_that_left_since_the_last_line_has_its_share_and_is_named():
    said = line(80, 20, 0, 10, present=("desk", "oldbox"))
    assert "(desk 80, laptop 20, oldbox 10)" in said
    assert said.endswith("without laptop")


def test_an_idle_node_is_not_away():
    said = line(80, 0, 0, 10, present=("desk", "laptop", "oldbox"))
    assert "laptop 0" in said
    assert "without" not in said


def test_nobody_waits_for_a_node_that_is_away():
    slow = {"compute_seconds_by_rank": [1.0, 0.0, 0.0, 4.0]}
    said = line(80, 0, 0, 10, present=("desk", "oldbox"), **slow)
    assert_names(said, "the others wait for oldbox", "without laptop")


def test_a_perplexity_that_is_no_number_stays_none():
    assert perplexity_of(0.0) == 1.0
    assert perplexity_of(1000.0) == math.inf
    assert math.isnan(perplexity_of(math.nan))
