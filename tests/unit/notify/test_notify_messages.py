"""The text of messages: short, and with all that a person wants to know at night."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names
from support.metric_lines import start_line, step_line, story_of, team_line, written

from hearth.diagnose.catalogue import entries, explanation
from hearth.notify.event import Event
from hearth.notify.messages import MOST_LINES, PhoneMessage, compose
from hearth.record.story import Story, read_story

EVENING = Path(__file__).parents[2] / "fixtures" / "run" / "evening"
NIGHT = time.mktime((2026, 11, 26, 2, 13, 0, 0, 0, -1))
MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
STORY = story_of(start_line("desk", "laptop"), step_line(10.0, 10.0, step=12, steps=34))


def event(kind: str, *about: str, **more) -> Event:
    given = {"began": NIGHT, "at": NIGHT + 750, **more}
    return Event(kind, "evening", ("desk", "laptop", "oldbox"), about, **given)


def test_a_run_that_finished_says_what_it_did_where_and_to_what_effect():
    message = compose(event("finished"), read_story(EVENING))
    assert message == PhoneMessage(
        "evening finished",
        (
            "80 of 80 steps in 26 s",
            "on desk, laptop, oldbox",
            "held-out perplexity 266.81 → 179.35 (-33%)",
        ),
        "success",
    )


def test_who_was_away_at_the_end_and_why_it_ended_early_are_told():
    lines = [
        start_line("desk", "laptop", "oldbox", time="2026-11-26T21:00:00.5+00:00"),
        step_line(10.0, 10.0, 10.0, step=30),
        team_line(30, "desk", "oldbox"),
        {"kind": "end", "step": 40, "reason": "no better for 3 evaluations"}
        | {"time": "2026-11-26T21:01:15.5+00:00"},
    ]
    message = compose(event("finished"), story_of(*lines))
    assert message.lines == (
        "40 of 60 steps in 1 min 15 s",
        "on desk, oldbox; at the end without laptop",
        "ended early: no better for 3 evaluations",
    )


def test_a_script_that_finished_tells_its_time():
    message = compose(event("finished", script="train.py"), Story())
    assert message.lines == ("train.py in 12 min 30 s", "on desk, laptop, oldbox")


def test_a_failure_comes_with_its_node_its_cause_its_cure_and_the_command_that_shows_more():
    failed = event(
        "failed",
        "laptop",
        message=MEMORY,
        by_rank=True,
        hearth="hearth -i inventory/home",
    )
    message = compose(failed, STORY, explanation(MEMORY, "", True))
    cause, cure, error, steps, more = message.lines
    assert message.title == "evening failed on laptop"
    assert message.colour == "failure"
    assert steps == "12 of 34 steps done, 12 min 30 s after its start"
    assert error == MEMORY
    assert cause.startswith("cause: The GPU has not the memory")
    assert_names(cure, "cure: ", "micro_batch=1")
    assert more == ("more: hearth -i inventory/home logs evening --nodes laptop")


def test_an_error_of_hearths_own_is_its_own_cure():
    own = "data: row 7 of a.jsonl has no answer; correct the line or leave it out"
    log = f"hearth: error: {own}\n"
    message = compose(event("failed", "laptop", message=own, by_rank=True), Story())
    assert explanation(own, log, True) == []
    assert message.lines[:2] == (own, "before its first step, 12 min 30 s after its start")


DEEP = "/srv/" + "a-long-folder/" * 30


@pytest.mark.parametrize("by_rank", [True, False])
@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (f"{DEEP}rows.jsonl:7: no answer; correct the line", "rows.jsonl:7: no answer; correct"),
        (f"~/{DEEP[1:]}rows.jsonl: {'empty ' * 90}; delete it", "delete it"),
        (f"../{DEEP[1:]}a.pt, '{DEEP}b.pt' ({DEEP}c.pt): cut", "a.pt, 'b.pt' (c.pt): cut"),
        ("https://hub/a/b/c: no such page", "https://hub/a/b/c: no such page"),
        ("3/4 of a/b/c", "3/4 of a/b/c"),
    ],
)
def test_long_paths_do_not_push_the_cure_off_the_phone(error, kept, by_rank):
    failed = event("failed", "laptop", message=error, by_rank=by_rank)
    first = compose(failed, Story()).lines[0]
    assert kept in first
    assert "a-long-folder" not in first


def test_a_wait_says_since_when_why_and_until_when():
    why = "the supervisor of laptop broke off: it was killed or the machine went down"
    given = {"message": why, "ends": NIGHT + 3600, "limit": "launch_return_timeout"}
    waits = event("waiting", "laptop", **given)
    message = compose(waits, STORY)
    assert message.title == "evening waits for laptop"
    assert message.lines == (
        "since 02:13, 12 of 34 steps done",
        why,
        "It goes on by itself once it is back, and gives up at 03:13 at the latest "
        "(launch_return_timeout).",
        "more: hearth logs evening",
    )
    line = compose(event("waiting", "laptop", **given, answering=120.0), STORY).lines[2]
    assert_names(line, "03:13", "launch_return_timeout", "2 min", "launch_ready_timeout")


def test_steps_that_are_on_record_elsewhere_are_not_denied():
    waits = compose(event("waiting", "desk", begun=True), Story())
    failed = compose(event("failed", "desk", begun=True), Story())
    assert waits.lines[0] == "since 02:13"
    assert failed.lines[0] == "12 min 30 s after its start"


def test_the_end_of_a_wait_names_who_is_back():
    message = compose(event("back", "laptop"), STORY)
    assert message.title == "evening goes on: laptop is back"
    assert message.lines == ("12 of 34 steps done", "It had waited 12 min 30 s.")
    both = compose(event("back", "laptop", "oldbox"), STORY)
    assert both.title == "evening goes on: laptop, oldbox are back"


def test_a_node_that_drops_out_while_the_others_go_on_is_no_failure_of_the_run():
    apart = event("apart", "laptop", message=MEMORY, by_rank=True)
    message = compose(apart, STORY, explanation(MEMORY, "", True))
    assert message.title == "evening goes on without laptop"
    assert message.colour == "warning"


def test_steps_are_not_told_with_the_time_of_the_last_supervisor_alone():
    began = datetime.fromtimestamp(NIGHT - 7200).astimezone()
    story = replace(STORY, step=864, steps=1000, began=began)
    message = compose(event("stopped", at=NIGHT + 6), story)
    assert_names(message.body, "864 of 1000 steps done, 2 h")


def test_a_disk_that_takes_no_checkpoints_is_told():
    message = compose(event("disk", "laptop", message="No space left on device"), STORY)
    assert_names(message.title, "without checkpoints of laptop")
    assert_names(message.body, "No space left on device")


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)
def test_no_cure_of_the_catalogue_is_cut(entry):
    explained = [f"cause: {entry.cause}", f"cure: {entry.cure}"]
    message = compose(event("failed", "laptop", message="x", by_rank=True), STORY, explained)
    assert [line for line in message.lines if line in explained] == explained


@given(st.text(), st.lists(st.text(), max_size=9), st.sampled_from(["failed", "waiting", "apart"]))
def test_a_message_is_short_and_commands_no_screen_whatever_a_rank_printed(error, explained, kind):
    message = compose(event(kind, "laptop", message=error), STORY, explained)
    assert len(message.lines) <= MOST_LINES
    assert all(len(line) <= 400 for line in message.lines)
    assert "\x1b" not in message.title + message.body
    assert "\n" not in "".join(message.lines)


def test_a_record_that_is_torn_or_missing_hides_no_outcome(tmp_path):
    assert read_story(tmp_path) == Story()
    lines = written(start_line("desk"), step_line(10.0)) + '{"kind": "step", "step": "'
    (tmp_path / "metrics.jsonl").write_text(f'[1]\n{{"kind": 7}}\n{lines}')
    story = read_story(tmp_path)
    assert (story.step, story.steps, story.present) == (12, 60, ("desk",))
