"""Scores from lm-eval's results: which count, and whether a change may be chance."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.after.scores import rows_of, scores_of
from hearth.record.events import Score, ScoresEvent, event_in

AFTER = {
    "results": {
        "arc": {"alias": "arc", "acc,none": 0.5, "acc_stderr,none": 0.01, "f1,none": "N/A"},
        "mmlu": {"alias": "mmlu", "acc,none": 0.3, "acc_stderr,none": 0.004, "sample_len": 9},
        "mmlu_law": {"alias": " - law", "acc,none": 0.2, "acc_stderr,none": 0.02},
        "gsm8k": {"exact_match,strict-match": 0.1, "exact_match_stderr,strict-match": "N/A"},
        "lambada": {"perplexity,none": 12.0, "perplexity_stderr,none": 0.5},
    },
    "group_subtasks": {"mmlu": ["mmlu_law"], "arc": []},
    "higher_is_better": {"lambada": {"perplexity": False}, "arc": {"acc": True}},
    "n-samples": {"arc": {"original": 100, "effective": 50}},
}
BEFORE = {"results": {name: dict(numbers) for name, numbers in AFTER["results"].items()}}


def test_tasks_of_a_group_with_a_score_and_what_is_no_number_are_left_out():
    found = {(each.task, each.metric): each for each in scores_of(AFTER, None)}
    assert sorted(found) == [
        ("arc", "acc"),
        ("gsm8k", "exact_match (strict-match)"),
        ("lambada", "perplexity"),
        ("mmlu", "acc"),
    ]
    assert found["arc", "acc"] == Score("arc", "acc", 0.5, 0.01, examples=50)
    assert found["lambada", "perplexity"].higher is False


def test_scores_survive_the_record_of_a_run():
    scores = scores_of(AFTER, BEFORE)
    assert event_in(ScoresEvent(scores=scores).line).scores == scores
    titles, *rows = rows_of(scores)
    assert {len(row) for row in rows} == {len(titles)}


@pytest.mark.parametrize(
    ("before", "after", "higher", "verdict"),
    [
        (0.40, 0.50, True, "better"),
        (0.50, 0.40, True, "worse"),
        (12.0, 10.0, False, "better"),
        (0.40, 0.42, True, "about the same"),
        (None, 0.42, True, ""),
    ],
)
def test_a_change_within_two_standard_errors_is_none(before, after, higher, verdict):
    assert Score("t", "m", after, 0.01, before, 0.01, higher).verdict == verdict


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.5))
def test_better_one_way_is_worse_the_other(before, after, error):
    opposite = {"better": "worse", "worse": "better", "about the same": "about the same"}
    one = Score("t", "m", after, error, before, error)
    assert Score("t", "m", before, error, after, error).verdict == opposite[one.verdict]
