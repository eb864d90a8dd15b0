"""The line of a step in the log of a run."""

from __future__ import annotations

from support.facts import assert_names

from hearth.trainer.telemetry import step_line

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
