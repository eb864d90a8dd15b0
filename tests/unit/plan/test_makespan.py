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
    links = [draw(st.floats(0, 0.5)) for _ in stages[1:]]
    return stages, links, draw(st.integers(1, 12))


@given(_steps())
def test_a_step_takes_no_less_than_its_stages_and_links_and_no_more_than_one_after_the_other(step):
    stages, links, micro_batches = step
    seconds = makespan(*step)
    (least,) = least_makespans(np.array([stages]), links, micro_batches)
    assert least <= seconds * (1 + 1e-9)
    assert seconds <= micro_batches * (sum(stages) + 2 * sum(links)) * (1 + 1e-9)


@given(_steps())
def test_one_micro_batch_passes_through_all_stages_and_back(step):
    stages, links, _ = step
    assert makespan(stages, links, 1) == pytest.approx(sum(stages) + 2 * sum(links))


@given(_SECONDS, st.integers(1, 5), st.integers(1, 12))
def test_equal_stages_without_links_take_what_the_formula_says(seconds, stages, micro_batches):
    found = makespan([seconds] * stages, [0.0] * (stages - 1), micro_batches)
    assert found == pytest.approx((micro_batches + stages - 1) * seconds)


def test_a_step_is_shorter_with_the_slowest_stage_first():
    ahead, behind = ([1.0, 0.8, 0.8], [0.8, 0.8, 1.0])
    assert makespan(behind, [0, 0], 16) == pytest.approx(16 + 1.6)
    assert makespan(ahead, [0, 0], 16) < 1.03 * 16


def test_a_slow_link_sets_the_pace():
    assert makespan([0.1, 0.1], [1.0], 16) == pytest.approx(0.2 + 2 + 15)


def test_an_early_stage_holds_more_micro_batches_but_no_more_than_there_are():
    assert [in_flight(16, position, 3) for position in range(3)] == [5, 3, 1]
    assert [in_flight(2, position, 3) for position in range(3)] == [2, 2, 1]
