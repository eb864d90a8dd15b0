"""The live line of a run, and the news of its split."""

from __future__ import annotations

import pytest
from support.facts import assert_names

from hearth_controller.runs.story import Story
from hearth_controller.watch.progress import progress_text, split_news, state_text


def text_after(*lines):
    return progress_text(Story.from_lines(lines))


def news_after(*lines):
    """Return the news of the plans among these lines."""
    plans = Story.from_lines(lines).plans
    return [news for count in range(1, len(plans) + 1) if (news := split_news(plans[:count]))]


START = {
    "kind": "start",
    "steps": 60,
    "ranks": [{"node": "desk"}, {"node": "desk"}, {"node": "lap"}],
}
STEP = {
    "kind": "step",
    "step": 12,
    "steps": 60,
    "loss": 1.23456,
    "tokens": 3100,
    "tokens_per_second": 310,
    "tokens_per_second_by_rank": [80, 80, 150],
    "rows_by_rank": [4, 4, 8],
    "compute_seconds_by_rank": [0.9, 1.0, 1.1],
    "wait_seconds_by_rank": [0.2, 0.1, 0.0],
    "peak_memory_mib_by_rank": [1, 1, 1],
    "eta_seconds": 125,
}


def test_a_step_is_one_line_with_the_share_of_each_node():
    facts = ("step 12/60", "1.235", "310 tokens/s", "desk 160", "lap 150", "2 min 5 s")
    assert_names(text_after(START, STEP), *facts)


def test_a_step_says_for_whom_the_others_wait():
    usual = text_after(START, STEP)
    slow = text_after(START, STEP | {"compute_seconds_by_rank": [0.5, 0.4, 2.0]})
    assert slow.startswith(usual)
    assert_names(slow.removeprefix(usual), "lap")


def test_a_machine_that_slows_down_is_news_and_small_moves_are_not():
    plans = [
        {"kind": "plan", "step": 1, "rows": rows, "slowness": slowness}
        for rows, slowness in (
            ([4, 4, 8], [1.0, 1.0, 1.0]),
            ([2, 2, 4], [1.0, 1.0, 1.0]),  # the last step of an epoch
            ([4, 4, 8], [1.0, 1.0, 1.0]),
            ([4, 5, 7], [1.0, 1.0, 1.04]),
            ([5, 6, 5], [1.0, 1.0, 2.0]),
        )
    ]
    (news,) = news_after(START, *plans)
    assert_names(news, "desk 4 → 5 rows", "desk 5 → 6 rows", "lap 7 → 5 rows (at 50%")
    in_rounds = news_after(
        START,
        *(
            plans[0] | {"rows_of_round": rows, "slowness": [1.0, 1.0, 2.0]}
            for rows in ([8, 8, 16], [11, 11, 10])
        ),
    )
    assert_names(in_rounds[0], "lap 16 → 10 rows (at 50%")
    elsewhere = [{"kind": "start", "steps": 60, "ranks": [{"node": "desk"}] * 2}]
    other = plans[0] | {"rows": [8, 8], "slowness": [2.0, 2.0]}
    assert news_after(START, plans[0], *elsewhere, other) == []
    again = plans[0] | {"rows": [5, 6, 5], "slowness": [1.0, 1.0, 2.0]}
    assert news_after(START, plans[0], START, again) == []


def test_progress_before_and_after_the_steps():
    assert text_after() == "the ranks load the model"
    assert "before the first step" in text_after(START)
    assert "saving" in text_after(START, STEP | {"step": 60})


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"state": "waiting", "missing": ["lap"]}, "waiting until lap is ready"),
        ({"state": "waiting", "missing": []}, "all nodes are ready"),
        ({"state": "running"}, "load the model"),
    ],
)
def test_the_state_before_the_ranks_speak(record, text):
    assert text in state_text(record, Story())
