"""A node's clock against the controller's."""

from __future__ import annotations

import pytest
from support.facts import assert_names

from hearth_controller.base.clock import difference, skew


@pytest.mark.parametrize(
    ("there", "seconds"), [(100.5, 0), (100, 0), (101, 0), (90, -10), (160, 59)]
)
def test_a_skew_is_what_the_time_of_the_question_does_not_explain(there, seconds):
    assert skew(100, there, 101) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(4.9, ""), (7200, "2 h 0 min ahead"), (-90, "1 min 30 s behind")]
)
def test_a_clock_that_is_off_is_described(seconds, text):
    assert bool(difference(seconds)) == bool(text)
    assert_names(difference(seconds), text)


def test_the_time_stage_mentions_a_clock_that_is_more_than_a_second_off():
    assert difference(1.0, tolerated=1.0) == ""
    assert_names(difference(-1.5, tolerated=1.0), "behind")
    assert_names(difference(3.0, tolerated=1.0), "3 s ahead")
