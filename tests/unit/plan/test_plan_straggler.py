"""Detection of ranks that slow down or hold up the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.plan.straggler import moves, waited_for

HOME = ["tower", "laptop", "oldbox"]


def test_a_move_names_who_slowed_down_and_what_it_means():
    said = moves((4, 3), (5, 2), (1.02, 2.0), ["tower", "laptop"])
    assert_names(said, "tower 4 → 5 rows", "laptop 3 → 2 rows (at 50%")
    assert said.count("%") == 1


@pytest.mark.parametrize(
    ("seconds", "tokens", "names"),
    [
        ((1.0, 1.1, 1.2), (9, 9, 9), ""),
        ((1.0, 2.0, 4.0), (9, 9, 9), "oldbox"),
        ((1.0, 3.6, 4.0), (9, 9, 9), "laptop, oldbox"),
        ((2.0, 2.0, 0.1), (9, 9, 0), ""),  # without rows in this step
        ((4.0, 2.0, 0.1), (9, 9, 0), "tower"),
        ((3.0, 0.1, 0.1), (9, 0, 0), ""),
        ((0.0, 0.0, 0.0), (0, 0, 0), ""),
    ],
)
def test_the_others_wait_for_those_that_compute_much_longer(seconds, tokens, names):
    assert waited_for(seconds, tokens, HOME) == names


@pytest.mark.parametrize(
    ("waits", "names"),
    [((1.5, 1.6, 0.1), "oldbox"), ((10.5, 10.6, 9.0), ""), ((0.0, 0.0, 0.0), "oldbox")],
)
def test_nobody_waits_for_a_rank_where_the_exchange_takes_most_of_the_step(waits, names):
    assert waited_for((0.5, 0.4, 2.0), (9, 9, 9), HOME, waits) == names


def test_two_ranks_of_a_node_are_one_name():
    assert waited_for((1.0, 4.0, 4.0), (9, 9, 9), ["tower", "laptop", "laptop"]) == "laptop"


@given(st.lists(st.floats(0, 1e6), max_size=6))
def test_never_are_all_waited_for(seconds):
    names = [f"node{number}" for number in range(len(seconds))]
    waited = waited_for(seconds, [1] * len(seconds), names)
    assert not waited or len(waited.split(", ")) < len(seconds)
