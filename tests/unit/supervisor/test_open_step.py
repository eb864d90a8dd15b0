"""A step that takes long: its age, and who is waited for."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from support.facts import assert_names

from hearth.ranks.control_protocol import (
    EVALUATION,
    FOR_OTHERS,
    MICRO_BATCH,
    OPTIMIZER,
    Doing,
    Waiting,
)
from hearth.supervisor.messages import Beat
from hearth.supervisor.open_step import describe_open_step, waits_for_slow_link
from hearth.supervisor.ranks_watch import RanksWatch


def doing(what: str, step: int = 7, **more: object) -> Doing:
    return Doing(what, step, 0, 20.0, **more)


def waiting(**more: object) -> RanksWatch:
    """Return a rank's step that began at 100 s and waits for the others."""
    steps = RanksWatch("tower", 0, 2)
    steps.heard(0, doing(MICRO_BATCH), 100.0)
    steps.heard(0, doing(FOR_OTHERS, **more), 101.0)
    return steps


def said(steps: RanksWatch, now: float, **beats: Beat) -> str:
    return describe_open_step(recorded(steps, beats, now))


def recorded(steps: RanksWatch, beats: dict[str, Beat], now: float) -> dict | None:
    """Return a step as a reader of the record finds it."""
    found = steps.old_step(beats, now)
    return found and json.loads(json.dumps(asdict(found)))


def test_a_step_of_usual_length_is_not_mentioned():
    assert said(waiting(), 114.0, laptop=Beat(7, "micro-batch")) == ""


def test_an_old_step_has_its_age_and_the_node_that_is_waited_for():
    text = said(waiting(), 147.0, laptop=Beat(7, "micro-batch"), oldbox=Beat(7))
    assert_names(text, "step 7", "47 s", "laptop", "micro-batch")
    assert "oldbox" not in text
    assert "tower" not in text


def test_where_all_compute_nobody_is_waited_for():
    steps = RanksWatch("tower", 0, 2)
    steps.heard(0, doing(MICRO_BATCH), 100.0)
    text = said(steps, 130.0, laptop=Beat(7, "micro-batch"))
    assert_names(text, "step 7", "30 s")
    assert "wait" not in text


def test_the_node_that_the_others_wait_for_says_so_itself():
    steps = RanksWatch("tower", 0, 2)
    steps.heard(0, doing(MICRO_BATCH), 100.0)
    assert_names(said(steps, 130.0, laptop=Beat(7)), "tower", "micro-batch")


def test_a_node_that_is_through_with_the_step_already_is_not_waited_for():
    beats = {"laptop": Beat(8, "micro-batch"), "oldbox": Beat(7, "", "tower", 0.19)}
    text = said(waiting(), 242.0, **beats)
    assert_names(text, "tower → oldbox")
    assert "laptop" not in text


def test_where_all_wait_the_slowest_link_is_named():
    steps = waiting(sender="oldbox", mbit=80.0)
    beats = {"laptop": Beat(7, "", "tower", 0.19), "oldbox": Beat(7)}
    assert_names(said(steps, 242.0, **beats), "2 min 22 s", "tower → laptop", "0.19 Mbit/s")
    assert waits_for_slow_link(recorded(steps, beats, 242.0))
    healthy = recorded(waiting(sender="oldbox", mbit=900.0), {}, 242.0)
    assert not waits_for_slow_link(healthy)


@pytest.mark.parametrize("what", ["checkpoint", EVALUATION[0]])
def test_what_follows_a_step_is_no_part_of_it(what):
    steps = waiting()
    steps.heard(0, doing(OPTIMIZER), 102.0)
    steps.heard(0, doing(what), 103.0)
    steps.heard(0, doing(FOR_OTHERS), 104.0)  # of the evaluation
    assert said(steps, 900.0) == ""
    steps.heard(0, doing(MICRO_BATCH, 8), 901.0)
    assert_names(said(steps, 941.0), "step 8", "40 s")


def test_a_step_that_another_group_takes_again_begins_anew():
    steps = waiting()
    steps.heard(0, Waiting("broken", 3, 6, loaded=True), 300.0)
    assert said(steps, 900.0) == ""
    steps.heard(0, doing(MICRO_BATCH), 900.0)
    assert_names(said(steps, 920.0), "step 7", "20 s")


def test_of_several_ranks_the_one_that_computes_is_told():
    steps = waiting()
    steps.heard(1, doing(MICRO_BATCH), 100.0)
    assert steps.beat.doing == MICRO_BATCH
    steps.heard(1, doing(FOR_OTHERS), 130.0)
    assert steps.beat == Beat(7)
