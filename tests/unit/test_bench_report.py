"""The tables that the benches write."""

from __future__ import annotations

from tests.bench.heterogeneous import report as heterogeneous
from tests.bench.paper import put
from tests.bench.provision.report import aims, table
from tests.bench.slow_link import report as slow_link


def sitting(machines: int, second: float, ping: float) -> dict:
    def cost(*walls: float) -> list[dict]:
        return [{"wall": wall, "cpu": wall / 2} for wall in walls]

    return {
        "machines": machines,
        "first": cost(90.0),
        "second": cost(second - 1, second, second + 5),
        "second_with_sum": [],
        "ping": cost(ping, ping, ping * 9),
    }


def test_medians_are_shown_and_what_was_not_measured_is_left_out():
    told = table(
        {
            "date": "2026-11-20",
            "computer": "2 cores of X",
            "ansible": "2.19.0",
            "hearth": "abc",
            "sittings": [sitting(3, 30.0, 0.5)],
        }
    )
    assert "| 3 | first run | 1 | 90.0 | 45.0 | 180 | 30.00 s |" in told
    assert "| 3 | second run | 3 | 30.0 | 15.0 | 60 | 10.00 s |" in told
    assert "all-reduce |" not in told


def test_an_aim_that_is_not_met_says_so():
    few, many = sitting(3, 30.0, 0.5), sitting(10, 200.0, 1.0)
    assert ["**not met**" in line for line in aims([few, many])] == [False, True, True]
    assert ["**not met**" in line for line in aims([few, sitting(10, 90.0, 1.0)])] == [False] * 3


def test_the_table_takes_the_place_of_the_last_one():
    once = put("# Benchmarks\n", "sums", "old\n")
    assert once.count("<!-- sums: begin -->") == once.count("<!-- sums: end -->") == 1
    again = put(f"{once}\nmore\n", "sums", "new")
    assert "old" not in again
    assert "new" in again
    assert again.startswith("# Benchmarks\n")
    assert again.endswith("\nmore\n")


def trained(*speeds: float, predicted: float | None = None) -> list[dict]:
    return [
        {"tokens_per_second": speed, "predicted_tokens_per_second": predicted} for speed in speeds
    ]


def test_what_unequal_machines_come_to_is_set_against_the_sum_and_the_equal_split():
    unequal = {
        "shares": {"tower": 0.8, "laptop": 0.4, "oldbox": 0.2},
        "global_batch": 64,
        "alone": {
            "tower": trained(390, 400, 420),
            "laptop": trained(200),
            "oldbox": trained(100),
        },
        "equal": trained(300),
        "by_speed": trained(660, 672, 690, predicted=700.0),
    }
    told = heterogeneous.table(
        {
            "date": "2026-11-20",
            "computer": "2 cores of X",
            "hearth": "abc",
            "model": "A Llama",
            "skipped": 2,
            "sittings": [unequal],
        }
    )
    assert "| tower alone | 3 | 400 | 390 to 420 | 0.57 |" in told
    assert "| all, split by speed | 3 | 672 | 660 to 690 | 0.96 |" in told
    assert "- At least 0.95 of the sum: met (0.960)." in told
    assert "- At least 2.0 times the equal split: met (2.24)." in told
    assert "- Predicted within 10% of what happens: met (+4.2%)." in told
    alike = unequal | {"shares": {"tower": 0.5, "laptop": 0.5, "oldbox": 0.5}}
    assert heterogeneous.aims([alike]) == [
        "- On equal nodes at least 0.97 of the sum: **not met** (0.960)."
    ]


def test_a_run_over_slow_links_is_timed_without_its_first_steps():
    record = [
        {"kind": "step", "step": 16, "tokens": 100, "tokens_per_second": 1.0},
        {"kind": "step", "step": 32, "tokens": 100, "tokens_per_second": 50.0},
        {"kind": "step", "step": 48, "tokens": 100, "tokens_per_second": 100.0},
        {"kind": "evaluate", "when": "before", "loss": 3.0},
        {"kind": "evaluate", "when": "after", "loss": 2.0},
        {"kind": "end", "step": 48, "exchanged_bytes": 480},
    ]
    assert slow_link.figures_of(record, 16) == {
        "tokens_per_second": 200 / 3,
        "held_out_loss": 2.0,
        "bytes_a_step": 10,
    }


def test_rounds_are_set_against_the_sum_and_the_loss_of_an_exchange_in_every_step():
    def run(speed: float, loss: float, size: float) -> list[dict]:
        return [{"tokens_per_second": speed, "held_out_loss": loss, "bytes_a_step": size}]

    figures = {
        "date": "2026-11-20", "computer": "2 cores of X", "hearth": "abc", "link": "100mbit",
        "shares": {"tower": 0.8, "laptop": 0.4}, "every": 16, "steps": 64, "rows": 14,
        "length": 128,
        "alone": {"tower": trained(400), "laptop": trained(200)},
        "each": run(450, 2.0, 7.5e6),
        "rounds": run(546, 2.03, 1.4e6),
    }  # fmt: skip
    told = slow_link.table(figures)
    assert "| all, sync_every=16 | 1 | 546 | 546 to 546 | 0.91 | 2.0300 | 1.40 |" in told
    assert "- At least 0.9 of the sum: met (0.910)." in told
    assert "in every step: **not met** (+1.50%)." in told
