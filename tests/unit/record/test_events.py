"""The events of a run: written and read by the same types, whatever else is in the file."""

from __future__ import annotations

import dataclasses
import json

import pytest
from support.metric_lines import start_line, step_line, story_of, team_line, written

from hearth.record import events
from hearth.record.events import RunEvent, StepEvent, event_in, read_events
from hearth.record.lines import METRICS, abridged, newest_step, text_lines

KINDS = [each for each in vars(events).values() if isinstance(each, type)]
KINDS = [each for each in KINDS if issubclass(each, RunEvent) and each is not RunEvent]
SAMPLES = {
    "int": 3,
    "Count": 3,
    "Number": 0.5,
    "str": "desk",
    "bool": True,
    "list[Score]": [events.Score("arc", "acc", 0.5, before=0.25)],
    "list[StretchRecord]": [{"learned": True, "text": "hello"}],
    "list[RankRecord]": [{"node": "desk", "rank": 0}],
    "list[str]": ["desk"],
    "dict[str, str]": {"desk": "why"},
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_written_is_read_again(kind):
    known = {each.name: SAMPLES.get(str(each.type).removesuffix(" | None")) for each in of(kind)}
    given = {name: value for name, value in known.items() if value is not None}
    lists = {"rows": [4, 2] if kind.__name__ == "PlanEvent" else given.get("rows")}
    event = kind(**given | {name: value for name, value in lists.items() if value})
    assert event_in(event.line) == event


def of(kind):
    return [each for each in dataclasses.fields(kind) if each.init and each.name != "kind"]


def test_a_number_that_is_not_finite_is_written_as_null_and_an_unknown_one_not_at_all():
    line = json.loads(StepEvent(step=2, loss=float("nan")).line)
    assert line["loss"] is None
    assert "eta_seconds" not in line


def test_an_event_of_a_later_version_keeps_its_step():
    event = event_in('{"kind": "moved", "time": "2026-11-20T20:00:00Z", "step": 7, "to": ["lap"]}')
    assert (event.kind, event.step, event.news) == ("moved", 7, "")
    assert story_of({"kind": "moved", "step": 7}, start_line("desk"), step_line(9.0)).step == 12


def test_drift_is_news():
    story = story_of(start_line("desk", "lap"), {"kind": "drift", "step": 9, "nodes": ["lap"]})
    assert "lap" in story.news[-1].news


def test_steps_that_others_follow_can_be_skimmed_over(tmp_path):
    steps = [step_line(9.0, step=step) for step in (1, 2, 3)]
    checkpoint = {"kind": "checkpoint", "step": 2}
    torn = written(step_line(9.0, step=4))[:-5]
    (tmp_path / METRICS).write_text(written(*steps[:2], checkpoint, steps[2]) + torn)
    found = read_events(tmp_path, skim=True)
    assert [(each.kind, each.step) for each in found] == [
        ("step", 2),
        ("checkpoint", 2),
        ("step", 3),
    ]
    assert newest_step(tmp_path / METRICS)["step"] == 3
    assert len([*text_lines(tmp_path / METRICS)]) == 5


def test_an_abridged_record_tells_the_last_launch_and_what_it_went_on_from(tmp_path):
    first = [start_line("desk", "lap"), team_line(1, "desk"), step_line(9.0, 9.0, step=20)]
    (tmp_path / METRICS).write_text(written(*first, start_line("lap", step=20)))
    start, step = abridged(tmp_path / METRICS)["lines"]
    assert json.loads(start)["ranks"] == [{"node": "lap"}]
    assert json.loads(step)["step"] == 20
    assert abridged(tmp_path / "none") == {}
