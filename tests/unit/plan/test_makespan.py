"""Seconds of a step of a pipeline."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.plan.makespan import in_flight, least_makespans, makespan

_SECONDS = st.floats(0.01, 2.0)


@st.composite
def _steps(draw):
    stages = draw(st.lists(_SECONDS, min_size=1, max_size=5))
    there, back = ([draw(st.floats(0, 0.5)) for _ in stages[1:]] for _ in range(2))
    return stages, there, back, draw(st.integers(1, 12))


@given(_steps())
def test_a_step_takes_no_less_than_its_stages_and_links_and_no_more_than_one_after_the_other(step):
    stages, there, back, micro_batches = step
    seconds = makespan(*step)
    (least,) = least_makespans(np.array([stages]), there, back, micro_batches)
    assert least <= seconds * (1 + 1e-9)
    assert seconds <= micro_batches * sum([*stages, *there, *back]) * (1 + 1e-9)


@given(_steps())
def test_one_micro_batch_passes_through_all_stages_and_back(step):
    stages, there, back, _ = step
    assert makespan(stages, there, back, 1) == pytest.approx(sum([*stages, *there, *back]))


@given(_SECONDS, st.integers(1, 5), st.integers(1, 12))
def test_equal_stages_without_links_take_what_the_formula_says(seconds, stages, micro_batches):
    links = [0.0] * (stages - 1)
    found = makespan([seconds] * stages, links, links, micro_batches)
    assert found == pytest.approx((micro_batches + stages - 1) * seconds)


def test_a_step_is_shorter_with_the_slowest_stage_first():
    ahead, behind = ([1.0, 0.8, 0.8], [0.8, 0.8, 1.0])
    assert makespan(behind, [0, 0], [0, 0], 16) == pytest.approx(16 + 1.6)
    assert makespan(ahead, [0, 0], [0, 0], 16) < 1.03 * 16


@pytest.mark.parametrize(("there", "back"), [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0)])
def test_a_link_that_is_slow_in_one_direction_or_both_sets_the_pace(there, back):
    assert makespan([0.1, 0.1], [there], [back], 16) == pytest.approx(0.2 + there + back + 15)


def test_an_early_stage_holds_more_micro_batches_but_no_more_than_there_are():
    assert [in_flight(16, position, 3) for position in range(3)] == [5, 3, 1]
    assert [in_flight(2, position, 3) for position in range(3)] == [2, 2, 1]
