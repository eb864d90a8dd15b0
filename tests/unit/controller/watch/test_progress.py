"""The live line of a run, and the news of its split."""

from __future__ import annotations

import pytest
from support.facts import assert_names
from support.metric_lines import slow_links, start_line, step_line, story_of, team_line

from hearth.record.story import Story
from hearth_controller.watch.progress import SplitNews, progress_text, state_text


def text_after(*lines):
    return progress_text(story_of(*lines))


def news_after(*lines):
    """Return the news of the plans among these lines."""
    news, story = SplitNews(), story_of(*lines)
    return [text for plan in story.plans if (text := news.add(plan, story))]


START = start_line("desk", "desk", "lap")
STEP = step_line(80, 80, 150, loss=1.23456, eta_seconds=125)


def test_a_step_is_one_line_with_the_share_of_each_node():
    facts = ("step 12/60", "1.235", "310 tokens/s", "desk 160", "lap 150", "2 min 5 s")
    assert_names(text_after(START, STEP), *facts)


def test_a_step_says_for_whom_the_others_wait():
    usual = text_after(START, STEP)
    slow = text_after(START, STEP | {"compute_seconds_by_rank": [0.5, 0.4, 2.0]})
    assert slow.startswith(usual)
    assert_names(slow.removeprefix(usual), "lap")


def test_a_link_that_holds_up_the_exchange_is_named_and_no_node_for_it():
    waits = {"wait_seconds_by_rank": [4.6, 4.7, 4.6], "compute_seconds_by_rank": [0.3, 0.2, 0.5]}
    slow = STEP | waits | {"slow_links": slow_links(("lap", "desk"))}
    text = text_after(START, slow)
    assert_names(text, "95% of a step", "link lap → desk: 5.0 Mbit/s", "940")
    assert text.index("940") < 80
    assert "wait" not in text
    assert "lap → desk" not in text_after(START, slow, STEP | {"step": 13})
    assert "lap → desk" not in text_after(START, slow, START)


@pytest.mark.parametrize("age", [3, 47])
def test_a_step_that_takes_long_says_since_when_and_for_whom(age):
    step = {"step": 13, "seconds": age, "waits_for": {"lap": "micro-batch"}, "link": None}
    text = state_text({"state": "running", "open_step": step}, story_of(*[START, STEP]))
    assert text.startswith("step 12/60")
    assert ("step 13 for 47 s, waits for lap" in text[:80]) == (age == 47)


def test_a_run_that_is_scored_or_copied_has_no_time_left_and_is_trained():
    ended = {"kind": "end", "state": "finished", "step": 12}
    assert "left" in text_after(START, STEP)
    assert "left" not in text_after(START, STEP, ended)
    assert_names(text_after(START, STEP, ended), "step 12/60", "trained")


GONE = team_line(12, "desk", left={"lap": "no sign of life for 6 s"})


def test_the_line_says_who_trains_and_who_is_away():
    alone = step_line(80, 80, 0, step=13, rows_by_rank=[8, 8, 0])
    assert "without" not in text_after(START, STEP)
    # The last step was one of the whole team.
    assert_names(text_after(START, STEP, GONE), "(desk 160, lap 150)", "· without lap")
    assert text_after(START, STEP, GONE, alone).endswith("160 tokens/s · without lap")
    back = team_line(14, "desk", "lap", joined=["lap"])
    assert "without" not in text_after(START, STEP, GONE, alone, back)


def test_a_node_that_joins_is_told_by_the_metrics_alone():
    cause = {"node": "lap", "rank": None, "kind": "node_back", "message": "lap joined"}
    record = {"state": "waiting", "cause": cause, "missing": []}
    assert "lap joined" not in state_text(record, story_of(*[START, STEP]))


def test_a_run_of_which_the_house_has_all_machines_says_who_has_them():
    told = "away: switched off by hand; lap: its hours are 23:00-07:00"
    cause = {"node": "desk", "rank": None, "kind": "away", "message": told}
    record = {"state": "waiting", "cause": cause, "missing": ["desk", "lap"]}
    assert state_text(record, Story()) == f"waiting, since desk is {told}"


def plan(*rows: int, slow: float = 1.0, **more: object) -> dict[str, object]:
    """Return the line of a plan with a last rank this slow."""
    slowness = [1.0] * (len(rows) - 1) + [slow]
    return {"kind": "plan", "step": 1, "rows": rows, "slowness": slowness, **more}


def test_a_machine_that_slows_down_is_news_and_small_moves_are_not():
    plans = [
        plan(4, 4, 8),
        plan(2, 2, 4),  # the last step of an epoch
        plan(4, 4, 8),
        plan(4, 5, 7, slow=1.04),
        plan(5, 6, 5, slow=2.0),
    ]
    (news,) = news_after(START, *plans)
    assert_names(news, "desk 4 → 5 rows", "desk 4 → 6 rows", "lap 8 → 5 rows (at 50%")


@pytest.mark.parametrize("slow", [4, 7])
def test_a_machine_whose_load_comes_and_goes_is_news_a_few_times_an_hour(slow):
    """A desk that is used on and off moves a few rows, or many, with every minute."""
    clock = [f"2026-11-26T20:{minute:02}:00+00:00" for minute in range(40)]
    quiet, used = plan(8, 8, 8), plan(8, 16 - slow, slow, slow=1.6)
    lines = [line | {"time": time} for line, time in zip([quiet, used] * 20, clock, strict=True)]
    news = news_after(start_line("desk", "desk", "lap", time=clock[0]), *lines)
    assert 1 <= len(news) <= 4 if slow == 4 else not news


def test_a_machine_that_slows_down_in_rounds_is_news():
    rounds = ([8, 8, 16], [11, 11, 10])
    plans = [plan(4, 4, 8, slow=2.0, rows_of_round=rows) for rows in rounds]
    (news,) = news_after(START, *plans)
    assert_names(news, "lap 16 → 10 rows (at 50%")


@pytest.mark.parametrize("again", [START, start_line("desk", "desk")])
def test_a_launch_begins_without_news(again):
    other = plan(5, 6, 5, slow=2.0) if again == START else plan(8, 8, slow=2.0)
    assert news_after(START, plan(4, 4, 8), again, other) == []


def test_rows_that_move_because_a_node_left_or_joined_are_no_news_of_the_split():
    back = team_line(14, "desk", "lap", joined=["lap"])
    lines = [plan(4, 4, 8), GONE, plan(8, 8, 0, slow=3.0), back, plan(6, 6, 4, slow=3.0)]
    assert news_after(START, *lines) == []
    assert news_after(START, *lines, plan(4, 4, 8, slow=1.5))


def test_progress_before_and_after_the_steps():
    assert text_after() == "the ranks load the model"
    assert "before the first step" in text_after(START)
    assert "saving" in text_after(START, STEP | {"step": 60})


SCRIPT = {"state": "running", "script": "train.py", "since": "2026-11-22T07:30:00Z"}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"state": "waiting", "missing": ["lap"]}, "waiting until lap is ready"),
        ({"state": "waiting", "missing": []}, "all nodes are ready"),
        ({"state": "running"}, "load the model"),
        (SCRIPT, "train.py has been running since 2026-11-2"),
        ({"state": "running", "unreached": ["desk cannot reach lap"]}, " · desk cannot reach lap"),
    ],
)
def test_the_state_without_steps(record, text):
    assert text in state_text(record, Story())
