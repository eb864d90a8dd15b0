"""The record of a run whose group changed, as readers take it and as a replay repeats it."""

from __future__ import annotations

import shutil

import pytest
from support.ranks import furthest, trained
from support.team import SUM, Fault, Team, timeless

from hearth.ranks.control_protocol import LoadAlone, Waiting
from hearth.record.events import StepEvent, read_events
from hearth.record.story import read_story
from hearth_controller.report.page import page
from hearth_controller.report.read import read

pytestmark = pytest.mark.rotated("the record of a changed group")
STEPS = 6


@pytest.fixture(scope="module")
def settings(tiny_model, tiny_data):
    """Return the settings of every run here."""
    return {
        **{"model": str(tiny_model), "dataset": str(tiny_data), "sequence_length": 96},
        **{"packing": True, "epochs": 1},
        **{"learning_rate": 0.01, "global_batch": 7, "max_steps": STEPS, "split": "equal"},
        **{"micro_batch": 1, "precision": "fp64", "wandb": "off", "eval_held_out": False},
    }


@pytest.fixture(scope="module")
def changed(tmp_path_factory, settings):
    """Return the folder of a run that began without b and lost c after two steps, and its result.

    The ranks are a, b and c.
    """
    folder = tmp_path_factory.mktemp("changed")
    with Team(folder, settings, Fault("c", SUM, 3, before=True)) as team:
        team.begin("a", "c")
        team.regroup("a")
        team.end("a")
        return team.folder("a"), team.learned("a")


def rows_by_rank(folder):
    """Return each rank's rows in each step of a run."""
    events = read_events(folder)
    return [event.rows_by_rank for event in events if isinstance(event, StepEvent)]


def test_readers_know_who_was_there(changed):
    folder, _ = changed
    story = read_story(folder)
    assert story.nodes == ["a", "b", "c"]
    assert [list(window.parts) for window in story.windows] == [["a", "c"]] * 2 + [["a"]] * 4
    assert [window.step for window in story.windows] == list(range(1, STEPS + 1))
    b, c = story.absences
    assert (b.node, b.since, b.until, b.why) == ("b", 0, None, "")
    assert (c.node, c.since, c.until) == ("c", 2, None)
    assert c.why
    (team,) = story.teams
    assert team.nodes == ["a"]
    assert team.waited >= 0
    assert story.rows_of(story.plans[0]) == {"a": 4, "c": 3}
    assert all(list(story.rows_of(plan)) == ["a"] for plan in story.plans if plan.team)
    html = page(read(folder))
    assert "c left" in html
    assert html.count("<svg") == 6


def test_a_rank_that_joins_divides_by_speed_as_the_others_do(settings, tmp_path):
    by_speed = {"split": "auto", "micro_batch": "auto", "global_batch": 16}
    fault = Fault("b", SUM, 5, act="stop", before=True)
    with Team(tmp_path, {**settings, **by_speed}, fault) as team:
        choices = team.begin_slowly("b", "b", "c")
        team.ranks.start("a")
        team.ranks.hear(Waiting, 0)
        team.ranks.order(LoadAlone(choices), 0)
        team.ranks.hear(Waiting, 0, where=lambda told: told.loaded)
        team.ranks.pause(1, 2)
        team.wake("b")
        team.regroup("a", "b", "c")
        team.end()
        records = [timeless(team.records(node)) for node in "abc"]
        assert records[0] == records[1] == records[2]
        rows = rows_by_rank(team.folder("a"))
        assert not any(a for a, _, _ in rows[:4])
        assert len({sum(each) for each in rows}) <= 2  # of an epoch's last step, and of the others


def test_a_replay_repeats_who_computed_what(changed, settings, tmp_path):
    folder, learned = changed
    (tmp_path / "runs").mkdir()
    shutil.copytree(folder, tmp_path / "runs" / "night")
    typed = []
    for name, value in {**settings, "replay": "night"}.items():
        typed += [f"--{name.replace('_', '-')}", value]
    again = trained(tmp_path, "again", 3, *typed)
    assert furthest(again, learned) < 1e-12
    first, second = (rows_by_rank(tmp_path / "runs" / run) for run in ("night", "again"))
    assert first == second
    assert first[:2] == [[4, 0, 3]] * 2
    assert not any(b or c for _, b, c in first[2:])
