"""A long, silent task gives a sign of life."""

from __future__ import annotations

import pytest
from support.facts import assert_names

from hearth_controller.base.pulse import SILENCE, Pulse


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_a_silent_task_is_named_with_its_time_and_the_nodes_it_still_runs_on(clock):
    pulse = Pulse(live=False, clock=clock)
    pulse.begin("Install the packages")
    for node in ("tower", "laptop", "oldbox"):
        pulse.enter(node)
    pulse.leave("tower")
    clock.now = SILENCE - 0.1
    assert pulse.line() is None
    clock.now = 75
    line = pulse.line()
    assert_names(line, "Install the packages", "1 min 15 s", "laptop, oldbox")
    assert "tower" not in line


def test_nothing_is_silent_for_fifteen_seconds_and_output_counts(clock):
    pulse = Pulse(live=False, clock=clock)
    pulse.begin("x")
    at, lines = [], 0
    for clock.now in range(0, 200):
        if 60 <= clock.now < 120:
            pulse.heard()  # the task prints for a minute
        if pulse.line():
            pulse.heard()
            at.append(clock.now)
            lines += 1
    assert not [when for when in at if 60 <= when < 120]
    spoken = [0, *at, *range(60, 120), 199]
    assert max(b - a for a, b in zip(sorted(spoken), sorted(spoken)[1:], strict=False)) < 15


def test_on_a_terminal_a_long_task_counts_its_seconds(clock):
    pulse = Pulse(live=True, clock=clock)
    pulse.begin("x")
    seen = 0
    for clock.now in range(0, 30):
        if pulse.line():
            pulse.heard()
            seen += 1
    assert seen > 15


def test_between_tasks_there_is_no_sign(clock):
    pulse = Pulse(live=False, clock=clock)
    pulse.begin("")
    clock.now = 1000
    assert pulse.line() is None
