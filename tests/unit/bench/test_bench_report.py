"""The benches: their commands, the document they write, and their arithmetic."""

from __future__ import annotations

import importlib
import json
import random
import runpy
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names, refuses
from support.lines import assert_line
from support.losses import KINDS, MOMENTS
from support.programs import run

from hearth.plan.makespan import makespan
from tests.bench import beside, cpu_use
from tests.bench.elastic import report as elastic
from tests.bench.lost import cases as lost
from tests.bench.paper import DOCUMENT, put
from tests.bench.pipeline import report as pipeline
from tests.bench.slow_link import report as slow_link

BENCHES = sorted(path.parent.name for path in Path(beside.__file__).parent.glob("*/__main__.py"))
MEASURED = sorted(path.parent.name for path in Path(beside.__file__).parent.glob("*/figures.json"))
"""Benches that have run: the document says of the others that they have not."""


def test_a_bench_can_be_called_without_the_paths_of_the_tests():
    # What the tests find by pyproject.toml, a command does not.
    words = (sys.executable, "-m", "tests.bench.diagnosis", "--help")
    done = run(*words, cwd=DOCUMENT.parents[2], PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert_names(done.stdout, "python -m tests.bench.diagnosis")


def bench(name: str) -> Any:
    return importlib.import_module(f"tests.bench.{name}.__main__")


@pytest.mark.parametrize("name", BENCHES)
def test_each_bench_explains_its_options(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(bench(name).__file__, run_name="__main__")
    assert ended.value.code == 0
    assert_names(capsys.readouterr().out, f"python -m tests.bench.{name}", "--dry")


# -- the document ----------------------------------------------------------------------------------


def recorded(name: str) -> dict[str, Any]:
    """Return the raw figures that a bench has left beside itself."""
    return json.loads(Path(bench(name).__file__).with_name("figures.json").read_text())


@pytest.mark.parametrize("name", MEASURED)
def test_a_benchs_raw_figures_make_the_documents_section(name):
    assert bench(name).table(recorded(name)) in DOCUMENT.read_text()


def multiply(part: Any, name: str, factor: float) -> None:
    """Multiply every figure called `name` in a part of the figures."""
    for each in part if isinstance(part, list) else [part]:
        for key, value in each.items() if isinstance(each, dict) else ():
            if key != name:
                multiply(value, name, factor)
            elif isinstance(value, list):
                each[key] = [figure * factor for figure in value]
            else:
                each[key] = value * factor


AIMS = [
    ("defaults", ["sets", "shipped", "auto"], "after", 1.5, 1),
    ("defaults", ["steps"], "steps", 0.1, 1),
    ("distribute", ["seconds", "8"], "transfer", 2, 1),
    ("exactness", ["ways", 1], "apart", 1e6, 1),
    ("elastic", ["runs", "hearth", "silent worker"], "seconds_until_on", 100, 1),
    ("elastic", ["runs", "hearth", "killed leader"], "seconds_waited", 100, 1),
    ("exactness", ["ways", 1], "losses", 1.1, 1),
    ("follow", ["together"], "tokens_per_second", 0.4, 1),
    ("heterogeneous", ["sittings", 0, "by_speed"], "tokens_per_second", 0.5, 3),
    ("heterogeneous", ["sittings", 1, "by_speed"], "tokens_per_second", 0.5, 1),
    ("lost", ["sittings", 0], "apart", 1e9, 1),
    ("memory", ["runs"], "estimated", 2, 1),
    ("packing", ["sets", "homelab-qa", "packed"], "tokens", 0.01, 1),
    ("provision", ["sittings", 1, "second"], "wall", 100, 2),
    ("slow_link", ["rounds"], "tokens_per_second", 0.5, 1),
    ("slow_link", ["rounds"], "held_out_loss", 1.5, 1),
]


@pytest.mark.parametrize(
    ("name", "place", "figure", "factor", "missed"), [aim for aim in AIMS if aim[0] in MEASURED]
)
def test_an_aim_that_is_missed_says_so(name, place, figure, factor, missed):
    figures = part = recorded(name)
    assert "**not met**" not in bench(name).table(figures)
    for step in place:
        part = part[step]
    multiply(part, figure, factor)
    assert bench(name).table(figures).count("**not met**") == missed


@pytest.mark.parametrize(("counts", "least", "most"), [((8, 8), 0.99, 1), ((14, 2), 0.5, 0.6)])
def test_a_lopsided_pipeline_is_no_good_one_however_busy_its_slowest_stage(counts, least, most):
    first, last = counts
    stages = [{"rank": 1, "layers": [0, first]}, {"rank": 0, "layers": [first, first + last]}]
    busy = [last + pipeline.HEAD, float(first)]
    step = {"tokens": 100, "tokens_per_second": 100 / max(busy), "compute_seconds_by_rank": busy}
    run = {"steps": [step, step], "stages": stages}
    run["core_seconds_by_rank"] = [0.4 * busy[0], 0.8 * busy[1]]
    assert pipeline.of_its_slowest_stage(step) == pytest.approx(1)
    for pace in (pipeline.by_the_clock(run), pipeline.without_waits(run, [0.4, 0.8])):
        assert pace == pytest.approx(busy)
        assert least <= pipeline.of_the_best(run, pace) <= most + 1e-9
        assert pipeline.of_the_sum(run, pace) <= pipeline.of_the_best(run, pace) + 1e-9


@given(
    st.lists(st.floats(0.1, 2), min_size=2, max_size=4),
    *(st.floats(0, 0.5), st.integers(1, 20), st.floats(0, 1)),
)
def test_a_pipelines_step_is_told_apart(stages, link, count, late):
    ways = [link] * (len(stages) - 1)
    seconds = makespan(stages, ways, ways, count) + late
    computed = [count * each for each in stages]
    step = {
        "tokens": 64,
        "tokens_per_second": 64 / seconds,
        "compute_seconds_by_rank": computed[::-1],
    }
    order = list(range(len(stages)))[::-1]
    found = pipeline.parts(step, order, count, link)
    assert sum(found) == pytest.approx(1)
    assert found.busy == pytest.approx(max(computed) / seconds)
    assert found.rest == pytest.approx(late / seconds, abs=1e-9)
    assert found.bubble > -1e-9
    assert pipeline.parts(step, order, count, 0).links == 0


def test_the_table_takes_the_place_of_the_last_one():
    once = put("# Benchmarks\n", "sums", "old")
    assert once == "# Benchmarks\n\n<!-- sums: begin -->\nold\n<!-- sums: end -->\n"
    assert put(f"{once}\nmore\n", "sums", "new") == f"{once.replace('old', 'new')}\nmore\n"


# -- figures ---------------------------------------------------------------------------------------


def lines(begin: float, each: float, count: int, tokens: int) -> list[dict]:
    """Return a record: `count` steps of `each` seconds, the first from second `begin` on."""
    at = datetime(2026, 11, 20, tzinfo=UTC)
    ends = [at + timedelta(seconds=begin + each * (number + 1)) for number in range(count)]
    step = {"kind": "step", "tokens": tokens, "tokens_per_second": tokens / each}
    steps = [step | {"time": end.isoformat()} for end in ends]
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
    with refuses(ValueError, "tower", "2 steps", 3):
        beside.speeds({"tower": lines(0, 1.0, 8, 1), "laptop": lines(6, 1.0, 8, 1)}, skipped=0)
    with refuses(ValueError, "laptop", 2):
        beside.speeds({"tower": lines(0, 1.0, 8, 1), "laptop": lines(0, 1.0, 2, 1)}, skipped=2)


def test_the_seconds_of_a_core_are_those_within_the_counted_steps():
    record = lines(0, 4.0, 5, 100)  # from second 4 on without the first one
    began = datetime(2026, 11, 20, tzinfo=UTC).timestamp()
    # Half a core until second 8, a quarter from then on.
    computed = [(0.0, 0.0), (8.0, 4.0), (21.0, 4.0 + 13 / 4)]
    samples = [
        cpu_use.Sample(began + at, {"tower": {1: seconds, **({} if at > 9 else {2: 100.0})}})
        for at, seconds in computed
    ]
    found = cpu_use.seconds_of_a_step(samples, record, skipped=1)
    assert found == {"tower": pytest.approx((4 / 2 + 12 / 4) / 4)}
    with refuses(ValueError, 5):
        cpu_use.seconds_of_a_step(samples, record, skipped=5)
    with pytest.raises(ValueError):
        cpu_use.seconds_of_a_step(samples[:2], record, skipped=1)


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
    with refuses(ValueError, "laptop"):
        beside.places(unequal, 1)


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


def test_a_loss_costs_the_time_until_the_next_step_and_the_steps_done_again():
    steps = [elastic.Step(at / 5, at, 3) for at in range(1, 61)]  # the last one at second 12
    on = elastic.Step(32.0, 51, 2)
    assert elastic.figures_of(12.0, steps, on) == pytest.approx(
        {"step_seconds": 0.2, "seconds_until_on": 20, "steps_again": 10}
    )
    assert elastic.figures_of(12.0, steps, elastic.Step(12.5, 61, 2))["steps_again"] == 0


def test_a_return_costs_the_longest_pause_until_all_have_taken_a_step_and_two_more():
    times = [0.0, 5.0, 5.5, 7.0, 7.5, 9.0, 20.0]
    steps = [elastic.Step(at, number, 2) for number, at in enumerate(times, 1)]
    assert elastic.waited(steps, begun=4.0, back=steps[3]) == 1.5


def test_what_a_loss_costs_is_told_with_its_least_and_most_where_it_was_measured_twice():
    cost = {"step_seconds": 0.5, "steps_again": 0, "seconds_until_in": 30.0, "seconds_waited": 1.0}
    twice = [cost | {"seconds_until_on": seconds} for seconds in (5.0, 7.0)]
    runs = {engine: dict.fromkeys(elastic.CASES, twice) for engine in ("hearth", "torchft")}
    runs["torchft"] = runs["torchft"] | {"silent leader": [{"seconds_until_on": None}]}
    given = {"date": "2026-11-25", "computer": "2 cores", "hearth": "abc", "torchft": "0.2.0"}
    given |= {"torch": "2.13.0", "machine_load": 0.1, "work": "Little.", "loads_for": 20.0}
    told = elastic.table(
        given | {"lost_after": 60, "patience": 180.0, "silence": 6.0, "runs": runs}
    )
    assert_line(told, "killed", "torchft", "6.0 (5.0 to 7.0)")
    assert_line(told, "leader's node falls silent", "torchft", "never")
    assert told.count("**not met**") == 1  # silent: 6 s are within the silence and a second


# -- losses ----------------------------------------------------------------------------------------

THREE = ("node0", "node1", "node2")


def test_the_matrix_has_every_kind_on_every_node_with_every_other_and_in_every_moment():
    cases = lost.matrix(THREE, random.Random(0))
    single = [case.faults[0] for case in cases if len(case.faults) == 1 and case.moment == "steps"]
    assert sorted(map(str, single)) == sorted(f"{kind}-{node}" for kind in KINDS for node in THREE)
    pairs = [case.kinds for case in cases if len(case.faults) == 2 and case.moment == "steps"]
    assert len(pairs) == len({*pairs}) == len(KINDS) * (len(KINDS) + 1) / 2
    for moment in MOMENTS[1:]:
        its = [case for case in cases if case.moment == moment]
        assert {kind for case in its for kind in case.kinds} == {*KINDS}
        assert all(bool(case.other) == (moment != "checkpoint") for case in its)
    sittings = lost.sittings(cases, 25)
    assert sorted(str(case) for sitting in sittings for case in sitting) == sorted(map(str, cases))
    assert max(map(len, sittings)) <= 25


@given(count=st.integers(1, 60), seed=st.integers(0, 1000))
def test_faults_in_a_row_are_as_many_as_asked_for_each_of_a_case_on_another_node(count, seed):
    cases = lost.in_a_row(count, THREE, random.Random(seed))
    assert sum(len(case.faults) for case in cases) == count
    for case in cases:
        assert len({fault.node for fault in case.faults}) == len(case.faults)
