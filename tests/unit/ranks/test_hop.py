"""The speed of a hop, from the arrival times of its pieces."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.ranks.hop import Hop, HopMeter

PIECE, CHUNK = 100_000, 1000


def piece(meter: HopMeter, begin: float, mbit: float, stall: float = 0.0) -> float:
    """Have a piece arrive from `begin` on, with a stall in its middle; return when its end did."""
    at = begin
    for missing in range(PIECE - CHUNK, -1, -CHUNK):
        at += CHUNK * 8e-6 / mbit + stall * (missing == PIECE // 2)
        meter.arrived(CHUNK, at, missing)
    return at


@given(st.floats(0.05, 900), st.integers(1, 9), st.integers(0, 10**6))
def test_the_time_in_which_the_sender_has_nothing_to_send_does_not_count(mbit, pieces, seed):
    chance, meter, now = random.Random(seed), HopMeter(), 1e9
    meter.begin(now)
    for _ in range(pieces):
        now = piece(meter, now + chance.choice([0.0, 0.5, 30.0]), mbit)
    assert meter.measured().mbit == pytest.approx(mbit, rel=0.02)


@pytest.mark.parametrize("stalled", [0, 3])
def test_a_sender_that_stood_still_within_a_piece_makes_no_slow_hop(stalled):
    meter, now = HopMeter(), 1e9
    meter.begin(now)
    for number in range(4):
        now = piece(meter, now, 900.0, stall=30.0 * (number == stalled))
    assert meter.measured().mbit == pytest.approx(900, rel=0.02)


def test_what_waited_for_this_rank_tells_no_speed():
    meter = HopMeter()
    meter.begin(1e9)
    piece(meter, 1e9 - 100, 5.0)  # while this rank computed
    assert meter.measured() == Hop()
    assert meter.measured().mbit is None


def test_a_window_that_was_full_while_this_rank_computed_is_no_slow_hop():
    meter = HopMeter()
    meter.begin(1e9)
    for missing in range(PIECE - CHUNK, PIECE // 2, -CHUNK):
        meter.arrived(CHUNK, 1e9 - 60, missing)
    at = 1e9
    for missing in range(PIECE // 2, -1, -CHUNK):
        at += CHUNK * 8e-6 / 900
        meter.arrived(CHUNK, at, missing)
    assert meter.measured().mbit == pytest.approx(900, rel=0.05)


def test_a_piece_that_is_under_way_tells_its_speed_until_nothing_comes_any_more():
    meter = HopMeter()
    meter.begin(1e9)
    assert meter.now(1e9 + 5) == Hop()
    for second in range(10):
        meter.arrived(25_000, 1e9 + second, PIECE)
    assert meter.now(1e9 + 9).mbit == pytest.approx(0.2)
    assert meter.now(1e9 + 60).mbit is None


def test_a_clock_that_is_set_back_spoils_one_piece():
    meter, now = HopMeter(), 1e9
    meter.begin(now)
    now = piece(meter, now, 90.0)
    meter.arrived(CHUNK, now, 2 * CHUNK)
    meter.arrived(CHUNK, now - 3600, CHUNK)
    meter.arrived(CHUNK, now - 3600, 0)
    assert meter.measured().mbit == pytest.approx(90, rel=0.02)
