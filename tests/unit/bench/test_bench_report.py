"""The tables that the benches write."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.facts import assert_names
from support.lines import assert_line
from support.waiting import HANG

from tests.bench import beside
from tests.bench.distribute import report as distribute
from tests.bench.elastic import report as elastic
from tests.bench.exactness import report as exactness
from tests.bench.follow import report as follow
from tests.bench.heterogeneous import report as heterogeneous
from tests.bench.memory import report as memory
from tests.bench.packing import report as packing
from tests.bench.paper import DOCUMENT, put
from tests.bench.provision.report import aims, table
from tests.bench.slow_link import report as slow_link

BENCHES = sorted(path.parent.name for path in Path(beside.__file__).parent.glob("*/__main__.py"))


# Each bench in a process of its own, forked from one that has loaded what takes them seconds.
CALLS = """
import os, runpy, sys
import torch, transformers.models.auto.modeling_auto

for name in sys.argv[1:]:
    if os.fork() == 0:
        sys.argv = [name, "--help"]
        runpy.run_module(f"tests.bench.{name}", run_name="__main__")
    if os.wait()[1]:
        sys.exit(f"{name} cannot be called")
"""


def test_the_benches_can_be_called():
    # By themselves: what the tests find by pyproject.toml, a command does not.
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, *BENCHES],
        cwd=DOCUMENT.parents[1],
        env=alone,
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    for name in BENCHES:
        assert f"python -m tests.bench.{name}" in done.stdout


@pytest.mark.parametrize("name", BENCHES)
def test_a_benchs_raw_figures_make_the_documents_section(name):
    bench = importlib.import_module(f"tests.bench.{name}.__main__")
    figures = Path(bench.__file__).with_name("figures.json")
    section = bench.table(json.loads(figures.read_text())) if figures.exists() else ""
    assert section in DOCUMENT.read_text()


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
    told = table(SEEN | {"ansible": "2.19.0", "sittings": [sitting(3, 30.0, 0.5)]})
    assert_line(told, "| 3 | first", "| 1 | 90.0 | 45.0 | 180 | 30.00 s |")
    assert_line(told, "| 3 | second", "| 3 | 30.0 | 15.0 | 60 | 10.00 s |")
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
    """Return runs of two steps: in each a rank waits, and a fifth of what is computed is lost."""
    waits = [
        {"wait_seconds_by_rank": [0.02, 0.3], "compute_seconds_by_rank": [0.98, 0.7]},
        {"wait_seconds_by_rank": [0.3, 0.04], "compute_seconds_by_rank": [0.7, 0.96]},
    ]
    return [
        {
            "tokens_per_second": speed,
            "predicted_tokens_per_second": predicted,
            "steps": [
                wait
                | {"tokens_per_second": speed, "own_tokens_per_second_by_rank": [speed, speed / 4]}
                for wait in waits
            ],
        }
        for speed in speeds
    ]


def test_what_unequal_machines_come_to_is_set_against_the_sum_and_the_equal_split():
    unequal = {
        **SEEN,
        "shares": {"tower": 0.8, "laptop": 0.4, "oldbox": 0.2},
        "global_batch": 64,
        "alone": {
            "tower": trained(390, 400, 420),
            "laptop": trained(200, 200, 210),
            "oldbox": trained(110, 100, 120),
        },
        "equal": trained(300, 300, 300),
        "by_speed": trained(672, 672, 690, predicted=700.0),
        "tutorial": trained(250),
    }
    where = {"model": "A Llama", "at_once": 3, "skipped": 2}
    told = heterogeneous.table(where | {"sittings": [unequal]})
    assert_line(told, "tower", "| 3 | 400 | 390 to 420 | 0.56 |")
    assert_line(told, "by speed", "| 3 | 672 | 672 to 690 | 0.96 |")  # of 700, 700 and 750
    assert_line(told, "tutorial", "| 1 | 250 | 250 to 250 | 0.36 |")
    assert_line(told, "0.95", "met (0.960)")
    assert_names(told, "1.20", "0.80")  # of their speeds alone, and of that
    assert_line(told, "2.0 times", "met (2.24)")
    assert_line(told, "10%", "met (+4.2%)")
    assert_line(told, "exchange", "0.030 s", "3.0%")
    alike = unequal | {"shares": {"tower": 0.5, "laptop": 0.5, "oldbox": 0.5}}
    assert_names(heterogeneous.aims([alike])[0], "0.97", "**not met** (0.960)")


def lines(begin: float, each: float, count: int, tokens: int) -> list[dict]:
    """Return a record: `count` steps of `each` seconds, the first from second `begin` on."""
    at = datetime(2026, 11, 20, tzinfo=UTC)
    ends = [at + timedelta(seconds=begin + each * (number + 1)) for number in range(count)]
    steps = [
        {
            "kind": "step",
            "time": end.isoformat(),
            "tokens": tokens,
            "tokens_per_second": tokens / each,
        }
        for end in ends
    ]
    return [{"kind": "start", "time": at.isoformat()}, *steps]


def test_machines_side_by_side_count_only_while_all_train():
    tower, laptop = lines(0, 1.0, 12, 100), lines(4, 2.0, 5, 50)
    for line in tower[8:10]:  # from second 7 to 9
        line["tokens_per_second"] = 50.0
    found = beside.speeds({"tower": tower, "laptop": laptop}, skipped=1)
    # From second 6, where the laptop's second step begins, to 12, where the tower is done.
    assert found["laptop"] == {"tokens_per_second": 25.0, "steps": 3}
    assert found["tower"]["steps"] == 6
    assert found["tower"]["tokens_per_second"] == pytest.approx(600 / 8)


def test_machines_that_hardly_train_at_the_same_time_are_named():
    with pytest.raises(ValueError, match=r"tower: 2 steps .*\b3 wanted"):
        beside.speeds({"tower": lines(0, 1.0, 8, 1), "laptop": lines(6, 1.0, 8, 1)}, skipped=0)
    with pytest.raises(ValueError, match=r"laptop: .*\b2\b"):
        beside.speeds({"tower": lines(0, 1.0, 8, 1), "laptop": lines(0, 1.0, 2, 1)}, skipped=2)


def test_a_machine_has_as_many_rows_for_itself_as_by_its_share():
    assert beside.parts({"tower": 0.8, "laptop": 0.4, "oldbox": 0.2}, 64) == {
        "tower": 37,
        "laptop": 18,
        "oldbox": 9,
    }
    assert beside.parts({"tower": 0.8, "laptop": 0.01}, 8)["laptop"] == 1


def test_machines_are_held_to_the_cores_with_most_room_for_their_shares():
    unequal = {"tower": 0.8, "laptop": 0.4, "oldbox": 0.2}
    assert beside.places(unequal, 2) == {"tower": 1, "laptop": 0, "oldbox": 0}
    equal = dict.fromkeys(["tower", "laptop", "oldbox"], 0.25)
    assert beside.places(equal, 2) == {"tower": 1, "laptop": 0, "oldbox": 1}
    with pytest.raises(ValueError, match="laptop: "):
        beside.places(unequal, 1)


SEEN = {"date": "2026-11-20", "computer": "2 cores of X", "hearth": "abc"}


def test_packing_is_set_against_both_ways_of_padding():
    def costs(*tokens_per_second: float) -> list[dict]:
        return [
            {"seconds": 2.0, "tokens": 2 * each, "positions": 400} for each in tokens_per_second
        ]

    ways = {
        "packed": costs(90, 100, 130),
        "packed to half": costs(110),
        "padded to the longest": costs(80),
        "padded": costs(10, 25, 40),
    }
    told = packing.table(SEEN | {"model": "a Llama", "layers": 6, "sets": {"words": ways}})
    assert_line(told, "| words | packed", 2048, "| 3 | 100 | 90 to 130 | 53% | 4.0 |")
    assert_line(told, "- words", "3 times", "met (4.0)", "1.25 times")
    slow = ways | {"packed": costs(70)}
    told = packing.table(SEEN | {"model": "a Llama", "layers": 6, "sets": {"words": slow}})
    assert_line(told, "**not met** (2.8)", "0.88 times")


def test_a_split_is_set_against_one_rank():
    ways = [
        {"way": "1 rank", "change": 2.0, "apart": 0.0, "furthest": 0.0, "losses": [4.0, 2.0]},
        {"way": "2 ranks", "change": 2.0, "apart": 1e-3, "furthest": 1e-4, "losses": [4.0, 2.1]},
    ]
    told = exactness.table(SEEN | {"model": "a Llama", "ways": ways})
    assert "| 2 ranks | 5.0e-04 | 1.0e-04 | 5.0e-02 |" in told
    assert_line(told, "parameters", "0.001", "met (5.0e-04)")
    assert_line(told, "loss", "1e-05", "**not met** (5.0e-02)")


def test_what_comes_after_a_machine_is_halved_is_set_against_the_new_sum():
    speeds = [100, 100, 100, 60, 40, 50, 70, 70, 70, 76, 74, 78]  # of the steps from the third
    run = {"halved_during": 6, "steps": [{"tokens_per_second": each} for each in speeds]}
    figures = SEEN | {
        "shares": {"tower": 0.8, "laptop": 0.4},
        "victim": "laptop",
        "skipped": 2,
        "alone": [{"tower": {"tokens_per_second": 60}, "laptop": {"tokens_per_second": 40}}],
        "halved": [{"tower": {"tokens_per_second": 60}, "laptop": {"tokens_per_second": 20}}],
        "together": [run],
    }
    told = follow.table(figures)
    assert "| 1 | 100 | 80 | 1.00 | 0.88 | 0.95 | 5 |" in told
    assert_line(told, "0.93", "5 steps", "met (0.950)")
    told = follow.table(figures | {"halved": figures["alone"]})
    assert "| 1 | 100 | 100 | 1.00 | 0.70 | 0.76 | never |" in told
    assert "**not met** (0.760)" in told


def test_an_estimate_of_memory_is_set_against_what_was_measured():
    mib = 1 << 20
    run = {"parameters": 40_000_000, "rows": 4, "length": 512, "before": 400 * mib}
    close = run | {"checkpointing": True, "peak": 1400 * mib, "estimated": 1050 * mib}
    far = run | {"checkpointing": False, "peak": 2400 * mib, "estimated": 1600 * mib}
    where = SEEN | {"libc": "glibc 2"}
    told = memory.table(where | {"runs": [close]})
    assert "| 40M | 1 | 4 × 512 | yes | 1000 | 1050 | +5% |" in told
    assert_line(told, "15%", "met (at most 5%)")
    assert "| 40M | 2 | 4 × 512 | yes |" in memory.table(where | {"runs": [close | {"ranks": 2}]})
    assert "**not met** (at most 20%)" in memory.table(where | {"runs": [close, far]})


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

    figures = SEEN | {
        "link": "100mbit", "model": "with random weights",
        "shares": {"tower": 0.8, "laptop": 0.4}, "steps": 64, "rows": 64,
        "length": 128, "exchange": {"sync_every": 8, "compress": "bf16"},
        "alone": {"tower": trained(400), "laptop": trained(200)},
        "each": run(450, 2.0, 7.5e6),
        "rounds": run(546, 2.03, 1.4e6),
    }  # fmt: skip
    told = slow_link.table(figures)
    assert_line(told, "sync_every=8", "compress=bf16", "546 to 546 | 0.91 | 2.0300 | 1.40")
    assert_line(told, "0.9", "met (0.910)")
    assert_line(told, "**not met** (+1.50%)")


def test_what_all_copies_take_is_compared_with_one():
    figures = SEEN | {
        "link": "100mbit",
        "megabytes": 300,
        "seconds": {
            "2": [{"transfer": 26.0, "play": 33.0}, {"transfer": 24.0, "play": 30.0}],
            "8": [{"transfer": 37.5, "play": 50.0}],
            "3": [{"transfer": 40.0, "play": 50.0}],
        },
    }
    told = distribute.table(figures)
    assert "| 2 | 1 | 2 | 25.0 | 24.0 to 26.0 | 1.00 | 12.0 | 31.5 s |" in told
    assert "| 8 | 7 | 1 | 37.5 | 37.5 to 37.5 | 1.50 | 8.0 | 50.0 s |" in told
    assert [line.endswith("met (1.50).") for line in distribute.aims(figures)] == [True, False]


def test_what_a_loss_costs_is_told_of_both_engines():
    steps = [elastic.Step(at / 5, at, 3) for at in range(1, 61)]  # the last one at second 12
    later = elastic.Step(12.4, 61, 3)  # on record by now, but done after the loss
    on, past = elastic.Step(32.0, 51, 2), elastic.Step(35.0, 61, 2)
    run = elastic.figures_of(12.0, [*steps, later], on, past)
    assert run == pytest.approx(
        {"step_seconds": 0.2, "seconds_until_on": 20, "seconds_until_past": 23, "steps_again": 10}
    )
    quick = {
        "step_seconds": 0.3, "seconds_until_on": 5, "seconds_until_past": 5,
        "steps_again": 0, "seconds_until_in": 9,
    }  # fmt: skip
    figures = SEEN | {
        "torch": "2", "load": 1.6, "torchft": "0.2.0", "work": "A Llama.", "lost_after": 60,
        "hearth_runs": [run | {"seconds_until_in": 31}],
        "runs": [quick, quick | {"seconds_until_on": 7}],
    }  # fmt: skip
    told = elastic.table(figures)
    assert "| Hearth | 1 | 0.20 | 20.0 | 23.0 | 10 | 31.0 |" in told
    assert_line(told, "torchft 0.2.0 | 2 | 0.30 | 6.0 (5.0 to 7.0) | 5.0 (5.0 to 5.0) | 0 | 9.0")
    assert_line(told, "torchft is sooner", "14 s")
    assert "| | Hearth | torchft 0.2.0 |" in told
