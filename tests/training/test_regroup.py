"""Real ranks form groups in place: members are lost, stand still, come back, and nothing hangs."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.conductor import Conductor
from support.strangers import answers
from support.summing import LARGE, SMALL, conducted, formed, waiting
from support.waiting import until

from hearth.ranks.control_protocol import Formed, Interrupt, Leave, Pause, RankEnded, Waiting

LAYOUT = {"tower": 1, "laptop": 2, "attic": 1}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Conductor]]:
    """Return a function that starts the ranks of a layout."""
    with conducted(tmp_path) as start:
        yield start


def test_ranks_keep_their_numbers_in_whatever_group(start):
    conductor = start(LAYOUT)
    for told in formed(conductor, conductor.form()):
        assert told["sum"] == 1111
        assert told["nodes"] == ["tower", "laptop", "laptop", "attic"]
        assert (told["members"], told["leader"], told["last"]) == ([0, 1, 2, 3], 0, 3)
    conductor.pause()
    waiting(conductor, "paused", 1)
    for told in formed(conductor, conductor.form("laptop", "attic"), 1, 2, 3):
        assert told["sum"] == 1110
        assert (told["members"], told["leader"], told["last"]) == ([1, 2, 3], 1, 3)
    for told in formed(conductor, conductor.form("tower"), 0):
        assert (told["sum"], told["members"]) == (1, [0])
    conductor.order(Interrupt(2, "over"), 1, 2, 3)
    conductor.order(Interrupt(3, "over"), 0)
    waiting(conductor, "broken", 2, 1, 2, 3)
    waiting(conductor, "broken", 3, 0)
    conductor.order(Leave(save=False))
    assert conductor.wait() == [0, 0, 0, 0]
    assert [said.message.outcome for said in conductor.hear(RankEnded)] == ["stopped"] * 4


@pytest.mark.rotated
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["between sums", "in a sum"])
@pytest.mark.parametrize("lost", ["tower", "laptop", "attic"])
def test_the_others_of_a_killed_rank_go_on_by_themselves(start, size, lost):
    conductor = start(LAYOUT, size)
    formed(conductor, conductor.form())
    time.sleep(0.3)  # into the sums
    others = [node for node in LAYOUT if node != lost]
    at = conductor.kill(*conductor.ranks(lost))
    for said in waiting(conductor, "broken", 1, *conductor.ranks(*others)):
        assert said.at - at < 10
        assert "rank" in said.message.message
    order = conductor.form(*others)
    expected = sum(10**rank for rank in conductor.ranks(*others))
    for told in formed(conductor, order, *conductor.ranks(*others)):
        assert told["sum"] == expected


@pytest.mark.rotated
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["between sums", "in a sum"])
def test_a_rank_that_stands_still_holds_up_the_others_until_they_are_interrupted(start, size):
    conductor = start({"tower": 1, "laptop": 1, "attic": 1}, size)
    formed(conductor, conductor.form())
    time.sleep(0.3)
    conductor.stop(2)
    time.sleep(1)
    assert not [said for said in conductor.said if isinstance(said.message, Waiting)][3:]
    at = time.monotonic()
    conductor.interrupt(0, 1, why="attic stands still")
    for said in waiting(conductor, "broken", 1, 0, 1):
        assert said.message.message == "attic stands still"
        assert said.at - at < 10
    order = conductor.form("tower", "laptop")
    told = conductor.hear(Formed, 0, 1, where=lambda told: told.generation == order.generation)
    assert [said.message.choices["sum"] for said in told] == [11, 11]
    print(f"to the first sum of the new group: {1000 * (told[-1].at - at):.1f} ms")
    assert told[-1].at - at < 10

    # Awake again it finds itself left behind, and may come back.
    conductor.wake(2)
    waiting(conductor, "broken", 1, 2)
    conductor.pause(0, 1)
    waiting(conductor, "paused", 2, 0, 1)
    assert [told["sum"] for told in formed(conductor, conductor.form())] == [111] * 3

    # Nor does the end of a process wait for it.
    conductor.stop(2)
    conductor.interrupt(0, 1)
    conductor.order(Leave(save=False), 0, 1)
    assert conductor.wait(0, 1) == [0, 0]


@pytest.mark.rotated
def test_a_rank_may_end_in_a_group_with_one_that_stands_still(start):
    conductor = start({"tower": 1, "laptop": 1})
    formed(conductor, conductor.form())
    conductor.stop(1)
    os.kill(conductor.pids[0], signal.SIGINT)  # Python's exit, in the middle of a sum
    assert conductor.wait(0) == [-signal.SIGINT]
    assert "KeyboardInterrupt" in conductor.log(0)


@pytest.mark.rotated
@pytest.mark.parametrize("missing", ["tower", "attic"])
def test_forming_ends_at_once_when_it_is_interrupted(start, missing):
    conductor = start({"tower": 1, "laptop": 1, "attic": 1})
    present = [rank for rank in range(3) if rank not in conductor.ranks(missing)]
    conductor.form(to=tuple(present))
    time.sleep(0.3)
    at = time.monotonic()
    conductor.interrupt(*present, why=f"{missing} is lost")
    for said in waiting(conductor, "broken", 1, *present):
        # A member hears of it from its supervisor, or from the first one, which has given up, or it
        # finds that one's connection closed.
        assert re.search("is lost|gave up forming|could not be formed", said.message.message)
        assert said.at - at < 10
    assert [told["sum"] for told in formed(conductor, conductor.form())] == [111] * 3


@pytest.mark.rotated
def test_a_member_that_stands_still_while_a_group_forms_does_not_hold_up_the_next(start):
    conductor = start({"tower": 1, "laptop": 1, "attic": 1})
    conductor.stop(1)
    conductor.form()
    time.sleep(0.3)
    conductor.interrupt(0, 2)
    waiting(conductor, "broken", 1, 0, 2)
    told = formed(conductor, conductor.form("tower", "attic"), 0, 2)
    assert [each["sum"] for each in told] == [101, 101]
    conductor.wake(1)  # to an order that nobody else follows any more
    conductor.order(Interrupt(1, "late"), 1)
    waiting(conductor, "broken", 1, 1)


@pytest.mark.rotated
def test_an_order_that_was_interrupted_before_it_was_read_forms_nothing(start):
    conductor = start({"tower": 1, "laptop": 1})
    conductor.stop(0, 1)
    conductor.form()
    conductor.interrupt()
    order = conductor.form()
    conductor.wake(0, 1)
    waiting(conductor, "broken", 1)
    assert [told["sum"] for told in formed(conductor, order)] == [11, 11]


@pytest.mark.rotated
def test_twenty_groups_in_a_row_leave_nothing_behind(start):
    conductor = start({"tower": 1, "laptop": 1, "attic": 1}, LARGE)
    used, slowest = [], 0.0
    for turn in range(20):
        began = time.monotonic()
        told = formed(conductor, order := conductor.form())
        slowest = max(slowest, time.monotonic() - began)
        used.append([(each["open"], each["threads"]) for each in told])
        time.sleep(0.01 * (turn % 4))
        if turn % 3:
            conductor.interrupt()
            waiting(conductor, "broken", order.generation)
        else:
            conductor.pause()
            waiting(conductor, "paused", order.generation)
    print(f"slowest of 20 groups: {1000 * slowest:.1f} ms")
    assert used[-1] == used[0]


@pytest.mark.rotated
def test_a_rank_that_starts_again_joins_between_two_steps(start):
    conductor = start({"tower": 1, "laptop": 1})
    formed(conductor, conductor.form("tower"), 0)
    conductor.kill(1)
    since = len(conductor.said)
    conductor.start("laptop")
    waiting(conductor, "new", 0, 1, since=since)
    conductor.order(Pause(conductor.generation), 0)
    (paused,) = waiting(conductor, "paused", 1, 0)
    assert paused.message.step > 0
    assert [told["sum"] for told in formed(conductor, conductor.form())] == [11, 11]


@pytest.mark.rotated
def test_nobody_but_the_nodes_is_answered_while_a_group_forms(start):
    conductor = start({"tower": 1, "laptop": 1})
    conductor.stop(1)
    order = conductor.form()
    until(lambda: answers((order.address, order.port), "127.0.0.1"))
    assert not answers((order.address, order.port), "127.0.0.9")
    conductor.wake(1)
    assert [told["sum"] for told in formed(conductor, order)] == [11, 11]


@pytest.mark.rotated
@pytest.mark.parametrize("stopped", [False, True], ids=["sums", "waits for a stopped rank"])
def test_ranks_end_with_their_supervisors(start, stopped):
    conductor = start({"tower": 1, "laptop": 1})
    formed(conductor, conductor.form())
    if stopped:
        conductor.stop(1)
    conductor.disconnect("tower")
    assert conductor.wait(0) == [-signal.SIGTERM]
