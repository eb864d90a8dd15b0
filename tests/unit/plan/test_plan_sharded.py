"""The cost of sharding: no rank has the whole model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names

from hearth.plan.planner import Fixed
from hearth.plan.prediction import fetch_seconds, network_cost, stop_grace, turns

LLAMA_2_7B = 2 * 6_738_415_616
"""Bytes of its weights in bf16."""


def test_seven_billion_weights_over_three_nodes_on_a_home_network_take_minutes():
    assert fetch_seconds(LLAMA_2_7B, 3) == pytest.approx(144, abs=1)
    facts = ("3 ranks", "13.5 GB of weights", "to 18.0 GB", "2 min 24 s", "1000 Mbit/s (assumed)")
    advice = ("parallel=fsdp", "micro_batch", "parallel=ddp")
    assert_names(network_cost(LLAMA_2_7B, 3), *facts, *advice)


def test_a_measured_link_takes_the_place_of_the_assumed_one():
    assert_names(network_cost(LLAMA_2_7B, 3, 94.2), "25 min 26 s", "94 Mbit/s")
    assert_names(network_cost(3 * 10**6, 2, 9400), "to 3.0 MB", "0 s", "9400 Mbit/s")
    assert "assumed" not in network_cost(LLAMA_2_7B, 3, 94.2)


@given(st.integers(1, 200), st.integers(1, 16), st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_ranks_take_as_many_turns_as_their_planner_makes(rows, micro_batch, shares):
    (planned,) = Fixed(shares, [micro_batch] * len(shares), together=True).plans(0, [rows])
    assert turns(rows, micro_batch, shares, len(shares)) == planned.turns


@given(st.floats(0, 1e5), st.integers(0, 10**12), st.floats(0, 1e5))
def test_a_stop_waits_for_a_step_a_checkpoint_on_a_slow_disk_and_an_evaluation(
    seconds, learned, judging
):
    grace = stop_grace(seconds, measured=True, learned=learned, judging=judging)
    assert grace > seconds + judging + 4 * learned / 60e6 + 29
    assert grace >= stop_grace(seconds, measured=True) >= 60
    assert stop_grace(seconds, learned=learned, judging=judging) == max(grace, 900)


def test_a_stop_waits_seven_minutes_for_a_billion_weights_that_all_learn():
    assert stop_grace(1.0, measured=True, learned=4 * 10**9) == 3 + 30 + 400
    assert stop_grace(1.0, measured=True, learned=20_000_000, judging=10) == 60
    assert stop_grace(1.0, measured=True, judging=100) == 3 + 30 + 100
