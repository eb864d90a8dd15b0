"""The thread that connects a group may hang: it is left behind, and its group is not forgotten."""

from __future__ import annotations

import threading
import time

import pytest
from support.waiting import HANG, until

from hearth.ranks.alarm import Alarm, GroupBroken
from hearth.ranks.group import connected


class Group:
    """A group of nothing, which knows whether it was aborted."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_a_group_is_returned_once_it_is_connected():
    group = Group()
    assert connected(lambda: group, Alarm()) is group
    assert not group.aborted


def test_an_error_of_connecting_is_raised():
    def connect():
        raise RuntimeError("Duplicate GPU detected")

    with pytest.raises(RuntimeError, match="Duplicate"):
        connected(connect, Alarm())


def test_what_hangs_is_left_behind_when_the_alarm_sounds_and_its_group_aborted_later():
    alarm, goes_on, group = Alarm(), threading.Event(), Group()

    def connect():
        assert goes_on.wait(HANG)
        return group

    threading.Timer(0.1, alarm.sound, ["attic was lost"]).start()
    began = time.monotonic()
    with pytest.raises(GroupBroken, match="attic was lost"):
        connected(connect, alarm)
    assert time.monotonic() - began < 5
    assert not group.aborted
    goes_on.set()
    until(lambda: group.aborted)


def test_a_group_that_is_there_when_the_alarm_has_sounded_is_aborted():
    alarm, group = Alarm(), Group()
    alarm.sound("attic was lost")
    with pytest.raises(GroupBroken):
        connected(lambda: group, alarm)
    until(lambda: group.aborted)


def test_an_error_that_comes_after_the_alarm_harms_nobody():
    alarm, goes_on = Alarm(), threading.Event()

    def connect():
        assert goes_on.wait(HANG)
        raise RuntimeError("the store did not answer")

    alarm.sound("tower was lost")
    with pytest.raises(GroupBroken, match="tower"):
        connected(connect, alarm)
    goes_on.set()
    until(lambda: not any(each.name == "connects" for each in threading.enumerate()))
