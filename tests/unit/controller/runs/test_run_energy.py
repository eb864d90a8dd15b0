"""The energy of a run: its record, the messages on it, and its cost."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.digests import digest, metrics, run_file
from support.facts import assert_names
from support.metric_lines import start_line, step_line, story_of

from hearth_controller.runs.digests import observed_runs
from hearth_controller.runs.energy import Energy, describe, energy_of, significant
from hearth_controller.runs.listing import compare
from hearth_controller.runs.outcome import Outcome
from hearth_controller.runs.summary import summary

KWH = 3.6e6
TWO = start_line("desk", "laptop", generation=0, step=0)


def step(number: int, total: float | None, *by_rank: float | None) -> dict:
    """Return the line of a step: desk and laptop learn from 1000 tokens each."""
    energy = {"energy_joules": total, "energy_joules_by_rank": list(by_rank)}
    return json.loads(json.dumps(step_line(100.0, 100.0, step=number, **energy)))


def end(total: float | None, *by_rank: float | None) -> dict:
    """Return the line of an end."""
    joules = {"energy_joules": total, "energy_joules_by_rank": list(by_rank)}
    return {"kind": "end", "state": "finished", "step": 60, **joules}


def of(*lines: dict, price: float = 0.0) -> Energy | None:
    return energy_of(story_of(*lines), price)


def test_energy_is_told_by_node_and_in_sum():
    lines = (TWO, step(1, 900.0, 600.0, 300.0), step(2, 2000.0, 700.0, 400.0), end(2150.0, 100, 50))
    energy = of(*lines, price=0.25)
    assert energy.joules == 2150.0
    assert energy.by_node == {"desk": 1400.0, "laptop": 750.0}
    assert energy.unmeasured == []
    assert energy.kwh == pytest.approx(2150 / KWH)
    assert energy.per_million == pytest.approx(2150 / 3600 / 4000 * 1e6)
    assert energy.cost == pytest.approx(2150 / KWH * 0.25)


def test_where_no_node_measures_anything_nothing_is_told():
    for lines in ((TWO, step(1, None, None, None), end(None, None, None)), (TWO,), (), (end(0.0),)):
        assert of(*lines) is None
    record = (TWO, step_line(100.0, 100.0, step=1))  # of a Hearth that did not measure
    assert of(*record) is None


def test_what_is_not_measured_is_named_and_no_figure_claims_to_hold_it():
    energy = of(TWO, step(1, 7.2e6, 7.2e6, None), price=0.3)
    assert energy.unmeasured == ["laptop"]
    assert energy.per_million is None
    assert describe(energy) == "2.00 kWh, 0.600 at 0.3 a kWh (without laptop)"


def test_a_node_whose_card_another_one_counts_is_in_the_sum():
    energy = of(TWO, step(1, 3600.0, 3600.0, 0.0))
    assert energy.by_node == {"desk": 3600.0}
    assert energy.unmeasured == []
    assert describe(energy) == "0.00100 kWh, 500 Wh per million tokens"


def test_a_node_that_is_away_uses_nothing_and_one_that_joins_counts_from_then_on():
    team = {"kind": "team", "step": 1, "nodes": ["desk"], "left": {"laptop": "x"}, "joined": []}
    alone = step_line(100.0, 0.0, step=2, energy_joules=600.0, energy_joules_by_rank=[200.0, None])
    back = {"kind": "team", "step": 2, "nodes": ["desk", "laptop"], "joined": ["laptop"]}
    lines = (TWO, step(1, 400.0, 200.0, 200.0), team, alone, back, step(3, 950.0, 200.0, 150.0))
    energy = of(*lines)
    assert energy.by_node == {"desk": 600.0, "laptop": 350.0}
    assert sum(energy.by_node.values()) == energy.joules == 950.0
    assert energy.unmeasured == []


def test_ranks_of_a_node_are_one_figure():
    one = {"energy_joules": 900.0, "energy_joules_by_rank": [900.0, None]}
    energy = of(start_line("desk", "desk"), step_line(100.0, 100.0, step=1, **one))
    assert energy.by_node == {"desk": 900.0}
    assert energy.unmeasured == []


def test_what_was_used_for_lost_steps_is_in_the_sum_alone():
    again = start_line("desk", "laptop", generation=1, step=1)
    energy = of(TWO, step(1, 400.0, 200.0, 200.0), again, step(2, 1300.0, 200.0, 200.0))
    assert energy.joules == 1300.0
    assert sum(energy.by_node.values()) == 800.0


def closing(*lines: dict, price: float = 0.0) -> str:
    ends = {node: {"state": "finished", "rank": n} for n, node in enumerate(("desk", "laptop"))}
    outcome = Outcome(ends, electricity_price=price)
    return summary("night", "-e model=m", story_of(*lines), outcome, "runs/night", [])


def test_the_closing_text_tells_energy_and_cost_or_nothing():
    line = step(1, 7.2e6, 3.6e6, 3.6e6)
    assert_names(closing(TWO, line, price=0.28), "energy", "2.00 kWh", "0.560 at 0.28 a kWh")
    assert "0.28" not in closing(TWO, line)
    assert "energy" not in closing(TWO, step(1, None, None, None), price=0.28)


def test_the_price_of_an_end_is_kept_with_it(tmp_path):
    answers = [{"node": "desk", "state": "finished", "rank": 0}]
    Outcome.from_answers(answers, electricity_price=0.31).write(tmp_path)
    assert Outcome.read(tmp_path).electricity_price == 0.31
    kept = json.loads((tmp_path / "ends.json").read_text())
    del kept["electricity_price"]  # as an earlier Hearth has written it
    (tmp_path / "ends.json").write_text(json.dumps(kept))
    assert Outcome.read(tmp_path).electricity_price == 0.0


def test_a_run_under_way_tells_its_energy_so_far_and_that_of_its_last_steps():
    line = step(30, 7.2e5, 1800.0, 1800.0)
    start = TWO | {"time": "2026-11-20T20:01:10+00:00"}

    def observed(line, **more):
        told = metrics(line, start=start, **more)
        (run,) = observed_runs({"desk": [digest("desk", metrics=told)], "laptop": []})
        return run

    run = observed(line)
    assert run.joules == 7.2e5
    assert run.watt_hours_per_million == pytest.approx(500)
    assert observed(line, end=end(7.5e5)).joules == 7.5e5
    assert observed(step(30, 7.2e5, 1800.0, None)).watt_hours_per_million is None


def test_two_runs_are_compared_by_their_energy_if_one_was_measured(tmp_path):
    told = metrics(step(30, 7.2e6, 1800.0, 1800.0))
    text = run_file(tmp_path, "evening")
    measured, other = (
        observed_runs({"desk": [digest("desk", metrics=each, run_file=text)]})[0]
        for each in (told, metrics(step(30, None, None, None)))
    )
    assert re.search(r"^energy +2\.00 kWh +–$", "\n".join(compare(measured, other)), re.MULTILINE)
    assert "energy" not in "\n".join(compare(other, other))


@given(st.floats(1e-9, 1e9))
def test_three_digits_are_shown_without_an_exponent(number):
    shown = significant(number)
    assert re.fullmatch(r"[\d,]+(\.\d+)?", shown)
    assert float(shown.replace(",", "")) == pytest.approx(number, rel=0.0051)
    assert len(shown.replace(",", "").replace(".", "").lstrip("0")) >= 3


def test_nothing_is_zero():
    assert significant(0.0) == "0"
