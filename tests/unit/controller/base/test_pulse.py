"""A long, silent task gives a sign of life."""

from __future__ import annotations

import itertools

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


def spoken(pulse: Pulse, clock: Clock, seconds: int) -> list[int]:
    """Return when a task gives a sign if it prints from second 60 to 119."""
    pulse.begin("x")
    at = []
    for clock.now in range(seconds):
        if 60 <= clock.now < 120:
            pulse.heard()
        if pulse.line():
            pulse.heard()
            at.append(clock.now)
    return at


def test_nothing_is_silent_for_fifteen_seconds_and_output_counts(clock):
    at = spoken(Pulse(live=False, clock=clock), clock, 200)
    assert not set(at) & set(range(60, 120))
    heard = sorted([0, *at, *range(60, 120), 199])
    assert max(later - earlier for earlier, later in itertools.pairwise(heard)) < 15


def test_on_a_terminal_a_long_task_counts_its_seconds(clock):
    assert spoken(Pulse(live=True, clock=clock), clock, 30) == list(range(12, 30))


def test_between_tasks_there_is_no_sign(clock):
    pulse = Pulse(live=False, clock=clock)
    pulse.begin("")
    clock.now = 1000
    assert pulse.line() is None
