"""A run whose nodes leave and join: who trained when, and the cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.metric_lines import start_line, step_line, story_of, team_line

from hearth.record.absences import describe_cost
from hearth.record.story import Story
from hearth.record.windows import thinned, totals
from hearth_controller.runs.outcome import Outcome
from hearth_controller.runs.summary import summary

NODES = ("desk", "lap", "old")
SILENT = "no sign of life for 6 s"
START = start_line(*NODES, generation=0)
ALL = step_line(50, 30, 20, step=12, steps=60)
GONE = team_line(12, "desk", "old", generation=1, left={"lap": SILENT}, waited=6.4)
WITHOUT = step_line(60, 0, 40, step=13, rows_by_rank=[8, 0, 4], celsius_by_rank=[50, None, None])
BACK = team_line(40, *NODES, generation=2, joined=["lap"], waited=0.75)


def story(*lines) -> Story:
    return story_of(*lines)


def texts(*lines) -> list[str]:
    return [f"{each.node} {each.text}" for each in story(*lines).absences]


def test_a_node_that_left_is_away_until_it_is_back():
    assert story(START).away == {}
    assert story(START).present == NODES
    gone = story(START, ALL, GONE)
    assert list(gone.away) == ["lap"]
    assert gone.present == ("desk", "old")
    assert texts(START, ALL, GONE) == [f"lap left after step 12 ({SILENT})"]
    back = (START, ALL, GONE, WITHOUT, BACK)
    assert story(*back).away == {}
    assert texts(*back) == [f"lap left after step 12 ({SILENT}), came back after step 40"]
    assert describe_cost(story(*back).teams) == "the others waited 7.2 s"


def test_a_run_may_begin_without_a_node():
    begun = start_line("desk", "old", layout=NODES)
    assert list(story(begun).away) == ["lap"]
    assert texts(begun, BACK) == ["lap was away from step 1 on, came after step 40"]
    (window,) = story(begun, WITHOUT).windows
    assert list(window.parts) == ["desk", "old"]


def test_ranks_that_are_launched_again_are_all_there():
    again = start_line(*NODES, generation=2, step=10)
    assert texts(START, ALL, GONE, again) == [
        f"lap left after step 12 ({SILENT}), came back after step 10"
    ]
    assert story(START, ALL, GONE, again).present == NODES


def test_a_node_that_is_away_has_no_part_in_the_steps():
    late = WITHOUT | {"step": 14, "tokens_per_second_by_rank": [60, 5, 40]}
    told = story(START, ALL, GONE, WITHOUT, late, BACK, ALL | {"step": 60})
    parts = [list(each.parts) for each in told.windows]
    # In the window in which it left it has learned some tokens.
    assert parts == [list(NODES), ["desk", "old"], list(NODES), list(NODES)]
    assert [each.team for each in told.windows] == [0, 1, 1, 2]
    (merged,) = thinned(told.windows[1:3], 1)
    assert merged.parts["lap"].tokens == pytest.approx(50)
    assert merged.team == 1
    _, seconds = totals(told.windows)["lap"]
    assert seconds == pytest.approx(sum(told.windows[n].seconds for n in (0, 2, 3)))


def test_an_idle_node_of_the_team_has_a_part():
    idle = step_line(60, 0, 40, rows_by_rank=[8, 0, 4])
    (window,) = story(START, idle).windows
    assert list(window.parts) == list(NODES)
    assert window.parts["lap"].rows == 0


def test_a_split_tells_only_of_those_that_are_there():
    plans = [
        {"kind": "plan", "step": step, "rows": rows}
        for step, rows in ((1, [6, 4, 2]), (13, [8, 0, 4]))
    ]
    told = story(START, plans[0], GONE, plans[1])
    (mark,) = told.replans
    assert mark.text == "rows a step: desk 8, old 4"
    assert [plan.team for plan in told.plans] == [0, 1]


def test_a_regroup_is_told_in_one_line():
    (gone, back) = story(START, GONE, BACK).teams
    assert gone.news == f"after step 12: lap left ({SILENT}); desk, old went on after 6.4 s"
    assert back.news == "after step 40: lap joined; desk, lap, old went on after 0.8 s"
    same = story(START, team_line(3, *NODES)).teams[0]
    assert "the same nodes" in same.news


def test_a_reason_cannot_be_a_command_to_the_terminal():
    wild = GONE | {"left": {"lap": "\x1b[2Jgone\nand more"}}
    assert texts(START, wild) == ["lap left after step 12 ( [2Jgone)"]


def test_a_team_before_any_launch_or_of_another_form_tells_nothing():
    assert story(GONE).teams == []
    assert story(START, {"kind": "team", "step": 3}).teams == []


@given(st.lists(st.sets(st.sampled_from(NODES), min_size=1), max_size=8))
def test_whoever_is_in_no_team_is_away_and_nobody_else(groups):
    lines, before = [], set(NODES)
    for step, now in enumerate(groups, 1):
        left = dict.fromkeys(sorted(before - now), SILENT)
        members = [node for node in NODES if node in now]
        lines.append(team_line(step, *members, left=left, joined=sorted(now - before)))
        before = now
    told = story(START, *lines)
    assert set(told.away) == set(NODES) - before
    assert set(told.present) == before
    for each in told.absences:
        through = groups[each.since - 1 : each.until and each.until - 1]
        assert through
        assert not any(each.node in group for group in through)
        assert each.why == SILENT
        assert each.until is None or each.node in groups[each.until - 1]
    away = sum(node not in group for group in groups for node in NODES)
    ends = len(groups) + 1
    assert away == sum((each.until or ends) - each.since for each in told.absences)


def test_the_supervisors_know_better_why_a_node_left():
    killed = "rank 1 was killed by signal 9 (SIGKILL)"
    causes = [
        launch(0, killed),
        launch(1, "of another group"),
        {"generation": 0, "cause": None},
        {"generation": "0", "cause": {"node": "lap"}},
        {"generation": 0, "cause": {"node": "desk", "message": "it did not leave"}},
    ]
    told = story(START, GONE, BACK, GONE | {"step": 50, "generation": 3}).explain(causes)
    assert [dict(team.left) for team in told.teams] == [{"lap": killed}, {}, {"lap": SILENT}]


# -- the closing text ------------------------------------------------------------------------------


def launch(generation: int, message: str, kind: str = "node_lost") -> dict:
    cause = {"node": "lap", "rank": None, "kind": kind, "message": message}
    return {"generation": generation, "ended": "2026-11-20T20:05:00Z", "cause": cause}


def closing(*lines, launches=()) -> str:
    """Return the closing text of a run with these metrics, as one line."""
    ends = {
        node: {"state": "finished", "rank": rank, "launches": list(launches)}
        for rank, node in enumerate(NODES)
    }
    text = summary("night", "-e model=m", story(*lines), Outcome(ends), "runs/night", [])
    return " ".join(text.split())


def test_the_closing_text_says_who_left_and_who_came_back():
    text = closing(START, ALL, GONE, WITHOUT, BACK)
    assert_names(text, f"lap left after step 12 ({SILENT}), came back after step 40")
    assert_names(text, "the others waited 7.2 s in 2 regroups")
    assert "on the way" not in closing(START, ALL)


def test_the_closing_text_says_which_disk_took_no_checkpoints():
    full = {"kind": "disk", "step": 12, "failing": {"lap": "No space left on device"}}
    assert story(START, ALL, full).disks == full["failing"]
    again = full | {"step": 30, "failing": {}}
    found = story(START, ALL, full, again)
    assert found.disks == {}
    text = closing(START, ALL, full, again)
    assert_names(text, "step 12: lap writes no checkpoints", "step 30: lap writes again")


def test_the_closing_text_tells_a_regroup_once_and_a_relaunch_as_before():
    again = start_line(*NODES, generation=3, step=10)
    launches = [launch(0, SILENT), launch(1, "lap is back", "node_back"), launch(2, "rank 1 died")]
    text = closing(START, ALL, GONE, BACK, again, ALL | {"step": 60}, launches=launches)
    assert text.count(SILENT) == 1
    assert_names(text, "went on after lap: rank 1 died")
    # The record of the trainer is lost: that of the supervisors has what is known.
    assert_names(closing(launches=launches), "went on after lap: no sign of life")


def test_many_departures_are_counted():
    lines = [START]
    for step in range(1, 20, 2):
        lines.append(GONE | {"step": step})
        lines.append(BACK | {"step": step + 1})
    text = closing(*lines)
    assert_names(text, "left after step 1 ", "left after step 7 ", "and 6 more", "in 20 regroups")
    assert "left after step 9 " not in text
