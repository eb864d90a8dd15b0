"""Plans by shares, and plans from the record of an earlier run."""

from __future__ import annotations

import json
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from support.facts import refuses

from hearth.base.errors import ConfigError, HearthError
from hearth.plan.planner import Fixed, Replayed
from hearth.plan.row_order import RowOrder
from hearth.plan.split import Plan
from hearth.trainer.planning import recorded_plans
from hearth.trainer.stepper import Stepper

FIRST, SECOND = Plan((4, 3), (2, 1)), Plan((5, 2), (2, 1))


def test_fixed_shares_hold_in_every_step_until_a_memory_is_too_small():
    planner = Fixed((2, 1), (4, 4))
    assert planner.plans(5, [9, 9]) == (Plan((6, 3), (4, 4)),) * 2
    planner.observe(planner.plans(5, [9]), [1, 1], [9.0, 1.0])
    planner.fits_no_more_than(0, 2)
    planner.fits_no_more_than(0, 3)
    assert planner.plans(6, [9]) == (Plan((6, 3), (2, 4)),)


def test_a_record_is_repeated_step_by_step():
    planner = Replayed("night", [(0, FIRST), (3, SECOND), (5, FIRST)], ranks=2, steps=6)
    assert planner.plans(0, [7] * 6) == (FIRST, FIRST, FIRST, SECOND, SECOND, FIRST)
    assert planner.plans(4, [7]) == (SECOND,)
    assert planner.share(14) == Plan((8, 6), (2, 1))


def test_plans_of_ranks_that_compute_together_stay_so():
    together = Plan((4, 3), (2, 1), together=True)
    assert Fixed((4, 3), (2, 1), together=True).plans(0, [7]) == (together,)
    assert Replayed("night", [(0, together)], ranks=2, steps=1).share(14).turns == 6


@pytest.mark.parametrize(
    ("ranks", "step", "rows", "facts"),
    [
        (3, 1, 7, ["with 2 ranks", "has 3"]),
        (2, 1, 5, ["step 2", "of 7 rows", "has 5"]),
        (2, 0, 7, ["step 1"]),
    ],
)
def test_a_record_that_does_not_fit_is_refused(ranks, step, rows, facts):
    with refuses(HearthError, "'night'", *facts):
        Replayed("night", [(1, FIRST)], ranks, steps=2).plans(step, [rows])


@pytest.mark.parametrize("other", [Plan((7,), (2,)), Plan((3, 2, 2), (2, 1, 1))])
def test_a_record_is_repeated_up_to_where_the_ranks_became_more_or_fewer(other):
    planner = Replayed("night", [(0, FIRST), (3, other)], ranks=2, steps=6)
    assert planner.plans(0, [7] * 3) == (FIRST,) * 3
    facts = ("step 4", "'night'", f"had {len(other.rows)} ranks", "has 2", "max_steps=3")
    with refuses(HearthError, *facts):
        planner.plans(0, [7] * 4)


def test_beyond_its_end_the_last_plan_of_a_record_holds_if_it_fits():
    planner = Replayed("night", [(0, FIRST)], ranks=2, steps=3)
    assert planner.plans(0, [7] * 5) == (FIRST,) * 5
    short = Replayed("night", [(0, FIRST), (2, Plan((1, 1), (2, 1)))], ranks=2, steps=3)
    with refuses(HearthError, "'night'", "3 steps", "max_steps=3"):
        short.plans(0, [7, 7, 2, 7, 7, 2])


def test_a_record_that_does_not_fit_is_refused_before_the_first_step():
    planner = Replayed("night", [(0, FIRST), (2, Plan((1, 1), (2, 1)))], ranks=2, steps=3)
    order = RowOrder(rows=16, global_batch=7, seed=0)
    facts = SimpleNamespace(rows=None, order=order)
    # The parts that compute are missing: they are not used.
    stepper = Stepper(MagicMock(), facts, MagicMock(), planner, None)
    with refuses(HearthError, "3 steps"):
        stepper.take(0, 4, dict)


def test_the_plans_are_read_from_the_metrics(tmp_path):
    path = tmp_path / "metrics.jsonl"
    plans = [
        {"kind": "plan", "step": step, "rows": plan.rows, "micro_batch": plan.micro_batch}
        for step, plan in ((1, FIRST), (4, SECOND))
    ]
    path.write_text("".join(json.dumps(plan) + "\n" for plan in plans))
    assert recorded_plans("night", path) == ([(0, FIRST), (3, SECOND)], 4)
    with path.open("a") as file:
        file.write('{"kind": "step", "step": 9}\n{"kind": "plan", "st')
    assert recorded_plans("night", path) == ([(0, FIRST), (3, SECOND)], 9)
    path.write_text("")
    with refuses(ConfigError, "no plans"):
        recorded_plans("night", path)
    with refuses(ConfigError, "'night'", "rank 0"):
        recorded_plans("night", tmp_path / "other.jsonl")


@pytest.mark.parametrize("later", [[], [{"kind": "start", "step": 1}]])
def test_the_record_of_a_pipeline_is_refused_as_one_also_if_the_run_went_on_without(
    tmp_path, later
):
    path = tmp_path / "metrics.jsonl"
    stages = [{"rank": rank, "layers": [2 * rank, 2 * rank + 2]} for rank in range(3)]
    plan = {"kind": "plan", "step": 1, "rows": [17] * 3, "micro_batch": [2] * 3}
    lines = [{"kind": "start", "step": 0, "stages": stages}, plan, {"kind": "step", "step": 1}]
    path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *later]))
    with refuses(ConfigError, "replay", "'night'", "parallel=pipeline"):
        recorded_plans("night", path)
