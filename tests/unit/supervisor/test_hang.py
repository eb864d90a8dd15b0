"""Ranks that do one thing for too long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.ranks.control_protocol import (
    Alive,
    Doing,
    Form,
    Formed,
    Interrupt,
    Leave,
    LoadAlone,
    Waiting,
)
from hearth.supervisor.ranks_watch import (
    ENDING,
    FORMING,
    LEAST,
    SILENT,
    STARTING,
    RanksWatch,
)

FORM = Form(3, ("desk", "laptop"), "10.0.0.1", 29500, (), False)


def watch(ranks: int = 1) -> RanksWatch:
    return RanksWatch("laptop", 1, ranks)


def test_a_rank_that_hangs_is_named_with_its_work():
    hangs = watch()
    hangs.heard(0, Doing("micro-batch", 12, 3, 34.0), 100)
    assert hangs.hanging(134) is None
    rank, message = hangs.hanging(135)
    assert rank == 1
    assert_names(message, "rank 1 of laptop", "35 s", "step 12, micro-batch 3", "34 s")


@given(st.floats(0, 1000), st.floats(0, 2000))
def test_work_is_bounded_by_what_it_allows_itself_and_no_less_than_the_least(allowed, seconds):
    hangs = watch()
    hangs.heard(0, Doing("checkpoint", 0, 0, allowed), 0)
    hangs.heard(0, Alive(), seconds)
    over = allowed > 0 and seconds > max(LEAST, allowed)
    assert (hangs.hanging(seconds) is not None) == over


def test_a_process_that_was_stopped_hangs_however_long_its_work_may_take():
    hangs = watch()
    hangs.heard(0, Doing("loading", 0, 0, 3600.0), 0)
    hangs.heard(0, Alive(), 500)
    hangs.slept(100)
    assert hangs.hanging(600 + SILENT) is None
    _, message = hangs.hanging(601 + SILENT)
    assert_names(message, "loading", "no sign of life", f"{SILENT + 1:.0f} s")


def test_each_new_piece_of_work_and_rest_begin_anew():
    hangs = watch()
    hangs.heard(0, Doing("micro-batch", 1, 1, 20.0), 0)
    hangs.heard(0, Doing("micro-batch", 1, 2, 20.0), 19)
    assert hangs.hanging(38) is None
    hangs.heard(0, Waiting("new", 0, 0, loaded=False), 20)
    assert hangs.hanging(1000) is None


def test_time_in_which_the_machine_slept_does_not_count():
    hangs = watch()
    hangs.heard(0, Doing("loading", 0, 0, 20.0), 0)
    hangs.slept(3600)
    assert hangs.hanging(3619) is None
    assert hangs.hanging(3621)


def test_of_several_the_first_hangs():
    hangs = watch(2)
    hangs.heard(0, Doing("micro-batch", 5, 1, 30.0), 3)
    hangs.heard(1, Doing("micro-batch", 5, 1, 30.0), 2)
    assert hangs.hanging(100)[0] == 2


@pytest.mark.parametrize(("allowed", "hangs_after"), [(0.0, LEAST), (300.0, 300.0)])
def test_an_interrupted_rank_comes_out_once_its_own_work_is_done(allowed, hangs_after):
    hangs = watch()
    hangs.heard(0, Doing("waits for the others", 5, 0, allowed), 0)
    hangs.ordered(Interrupt(3, "desk broke off"), 0)
    hangs.heard(0, Alive(), hangs_after)
    assert hangs.hanging(hangs_after) is None
    assert hangs.hanging(hangs_after + 1)


def test_a_rank_that_waits_for_orders_is_not_watched_when_its_group_is_interrupted():
    hangs = watch()
    hangs.heard(0, Doing("waits for the others", 5, 0, 0.0), 0)
    hangs.heard(0, Waiting("new", 0, 0, loaded=False), 20)
    hangs.ordered(Interrupt(3, "desk broke off"), 1)
    assert hangs.hanging(1000) is None


def test_forming_a_group_takes_a_bounded_time():
    hangs = watch()
    hangs.ordered(FORM, 0)
    assert hangs.hanging(FORMING) is None
    _, message = hangs.hanging(FORMING + 1)
    assert_names(message, "laptop", "forming", "generation 3")


def test_a_rank_that_was_told_to_load_begins_soon():
    hangs = watch()
    hangs.ordered(LoadAlone({}), 0)
    assert hangs.hanging(FORMING) is None
    assert hangs.hanging(FORMING + 1)
    hangs.heard(0, Doing("loading", 0, 0, 3600.0), FORMING)
    assert hangs.hanging(FORMING + 1) is None


def test_a_rank_that_is_stopped_between_its_group_and_its_first_work_hangs():
    hangs = watch()
    hangs.ordered(FORM, 0)
    hangs.heard(0, Formed(3, 7, {}), 10)
    assert hangs.hanging(10 + FORMING) is None
    _, message = hangs.hanging(11 + FORMING)
    assert_names(message, "laptop", "group")
    hangs.heard(0, Doing("micro-batch", 1, 1, 300.0), 10)
    assert hangs.hanging(11 + FORMING) is None


def test_a_rank_whose_end_torchrun_never_tells_hangs():
    watch = RanksWatch("laptop", 2, 1)
    watch.heard(0, Doing("micro-batch", 12, 3, 5.0), 100.0)
    watch.left(0, 101.0)
    assert watch.hanging(101.0 + ENDING) is None
    rank, message = watch.hanging(102.0 + ENDING)
    assert rank == 2
    assert "not yet reported by torchrun" in message


def test_a_rank_that_never_says_that_it_is_there_hangs():
    hangs = watch()
    hangs.started(100)
    assert hangs.hanging(100 + STARTING) is None
    rank, message = hangs.hanging(101 + STARTING)
    assert rank == 1
    assert_names(message, "rank 1 of laptop", "its start")
    hangs.heard(0, Doing("preparing model and data", 0, 0, 3600.0), 150)
    hangs.heard(0, Alive(), 700)
    assert hangs.hanging(101 + STARTING) is None
    hangs.heard(0, Alive(), 800)
    assert "no sign of life" in hangs.hanging(801 + SILENT)[1]


def test_a_rank_that_is_told_to_end_and_does_not_hangs():
    hangs = watch()
    hangs.ordered(Leave(save=True), 0)
    assert hangs.hanging(FORMING) is None
    assert_names(hangs.hanging(FORMING + 1)[1], "to end")
