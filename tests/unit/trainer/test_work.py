"""The time that pieces of work may take before their rank counts as hanging."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.waiting import until

from hearth.plan.speed import UNKNOWN, Speed
from hearth.ranks.control_protocol import Alive
from hearth.trainer import work
from hearth.trainer.work import Allowances, Work


def test_work_that_is_hardly_known_may_include_a_compilation():
    allowances = Allowances()
    for _ in range(2):
        assert allowances.allowed("rows", 1) == 900
        allowances.observe("rows", 1, 600)
    allowances.observe("rows", 1, 4)
    assert allowances.allowed("rows", 1) == 40
    assert allowances.allowed("others", 1) == 900


def test_more_tokens_may_take_longer_and_nothing_is_expected_within_an_instant():
    allowances = Allowances()
    for seconds in (9, 9, 5, 10, 2):
        allowances.observe("rows", 100, seconds)
    assert allowances.allowed("rows", 100) == pytest.approx(100)
    assert allowances.allowed("rows", 500) == pytest.approx(500)
    assert allowances.allowed("rows", 1) == 20


class Listener:
    """A supervisor that listens, with a clock of its own."""

    def __init__(self, monkeypatch, device, beat=1000, speed=UNKNOWN):
        self.now, self.heard, self.over = 0.0, [], ""
        monkeypatch.setattr(work.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(work, "_BEAT", beat)
        control = SimpleNamespace(tell=self.heard.append, is_over=lambda generation: self.over)
        self.work = Work(
            SimpleNamespace(
                control=control,
                supervisor=control,
                generation=1,
                device=torch.device(device),
                check=lambda: None,
                receives=("oldbox", 0.2),
            ),
            speed,
        )

    def step(self, seconds, parts=3):
        """Compute micro-batches of two rows of 50 tokens."""
        for part in range(parts):
            self.work.begin_rows("micro-batch", part, np.array([50, 40]))
            self.now += seconds
        self.work.wait()

    @property
    def allowed(self):
        return [each.allowed for each in self.heard if each.what == "micro-batch"]


def test_each_micro_batch_is_announced_with_its_step_and_number(monkeypatch):
    listener = Listener(monkeypatch, "cpu")
    listener.work.step = 7
    listener.step(1, parts=2)
    told = [(each.what, each.step, each.part, each.allowed) for each in listener.heard]
    waits = ("waiting for the others", 7, 0, 20.0)
    assert told == [("micro-batch", 7, 0, 900.0), ("micro-batch", 7, 1, 900.0), waits]


def test_a_micro_batch_may_take_several_times_the_slowest(monkeypatch):
    listener = Listener(monkeypatch, "cpu")
    listener.step(4)
    listener.step(3)
    assert listener.allowed == [900, 900, 900, 40, 40, 40]


def test_a_machine_may_be_as_slow_as_it_was_measured(monkeypatch):
    listener = Listener(monkeypatch, "cpu", speed=Speed((1, 2), (600.0, 700.0)))
    listener.step(800)
    assert listener.allowed == [7000] * 3


def test_a_gpu_may_take_the_time_of_all_that_it_was_given(monkeypatch):
    listener = Listener(monkeypatch, "cuda")
    for _ in range(3):
        listener.step(4)
    listener.step(4)
    assert listener.allowed[-3:] == [40, 80, 120]


def test_what_was_interrupted_says_nothing_of_speed(monkeypatch):
    listener = Listener(monkeypatch, "cpu")
    listener.step(4)
    listener.work.begin_rows("micro-batch", 0, np.array([50, 40]))
    listener.work.abandon()
    listener.now += 1000
    listener.step(4)
    assert listener.allowed[-1] == 40


def test_a_rank_that_waits_shows_that_it_lives_until_its_group_is_over(monkeypatch):
    listener = Listener(monkeypatch, "cpu", beat=0.001)
    listener.step(1, parts=0)
    until(lambda: len(listener.heard) > 3)
    assert {each.what for each in listener.heard} == {"waiting for the others"}
    assert (listener.heard[-1].sender, listener.heard[-1].mbit) == ("oldbox", 0.2)
    listener.over = "interrupted"
    time.sleep(0.05)
    heard = len(listener.heard)
    time.sleep(0.05)
    assert len(listener.heard) == heard


def test_what_a_rank_waited_for_others_counts_from_the_end_of_its_own_work(monkeypatch):
    listener = Listener(monkeypatch, "cpu")
    listener.step(2, parts=1)
    done = listener.now
    listener.now += 6  # in which a lost node is silent
    listener.work.wait()
    assert listener.work.idle_since == done
    listener.work.abandon()
    assert listener.work.idle_since == listener.now
    listener.step(2, parts=1)
    listener.work.begin("checkpoint", 30)
    assert listener.work.idle_since == listener.now


def test_a_rank_that_waits_for_its_supervisor_shows_nothing(monkeypatch):
    listener = Listener(monkeypatch, "cpu", beat=0.001)
    listener.step(1, parts=0)
    until(lambda: len(listener.heard) > 3)
    listener.work.abandon()
    heard = len(listener.heard)
    time.sleep(0.05)
    assert len(listener.heard) == heard


def test_a_rank_at_work_shows_that_it_lives_and_nothing_else(monkeypatch):
    listener = Listener(monkeypatch, "cpu", beat=0.001)
    listener.step(1, parts=0)
    listener.work.begin("checkpoint", 30)
    begun = len(listener.heard)
    until(lambda: len(listener.heard) > begun + 3)
    assert listener.heard[begun - 1].what == "checkpoint"
    assert {*listener.heard[begun:]} == {Alive()}
