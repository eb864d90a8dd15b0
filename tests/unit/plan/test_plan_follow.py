"""The split follows the machines."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.plan.follow import AdaptivePlanner
from hearth.plan.speed import UNKNOWN, Speed


def computed(plans, speeds, slowness):
    """Return each rank's compute seconds for its part of `plans`, multiplied by its `slowness`."""
    return [
        sum(speed.of_rows(plan.rows[rank]) for plan in plans) * slow
        for rank, (speed, slow) in enumerate(zip(speeds, slowness, strict=True))
    ]


def planned(follower, rows=64):
    """Return the plan of a step that all take together."""
    (plan,) = follower.plans(0, [rows])
    return plan


def drive(follower, speeds, slowness, steps, rows=64, noise=0.0, seed=0, every=1):
    """Take these steps, or rounds of `every`; return the rows a second of each."""
    random = np.random.default_rng(seed)
    rates = []
    for _ in range(steps):
        plans = follower.plans(0, [rows] * every)
        times = computed(plans, speeds, slowness)
        times = [each * random.uniform(1 - noise, 1 + noise) for each in times]
        follower.observe(plans, np.sum([plan.rows for plan in plans], axis=0), times)
        rates.append(every * rows / max(times))
    return rates


LINEAR = [Speed((1,), (0.5,)), Speed((1,), (1.1,)), Speed((1,), (2.0,))]


@given(st.integers(0, 2), st.floats(0, 0.04), st.integers(0, 20))
def test_after_a_speed_halves_the_sum_is_reached_again_within_five_steps(rank, noise, seed):
    follower = AdaptivePlanner(LINEAR)
    drive(follower, LINEAR, [1, 1, 1], 10, noise=noise, seed=seed)
    slowness = [1.0, 1.0, 1.0]
    slowness[rank] = 2.0
    rates = drive(follower, LINEAR, slowness, 12, noise=noise, seed=seed)
    total = sum(1 / (each.seconds[0] * slow) for each, slow in zip(LINEAR, slowness, strict=True))
    assert np.mean(rates[5:]) >= 0.93 * total


def test_what_was_never_measured_is_learned_from_the_first_steps():
    follower = AdaptivePlanner([UNKNOWN] * 3)
    rates = drive(follower, LINEAR, [1, 1, 1], 6)
    total = sum(speed.rows_per_second for speed in LINEAR)
    assert rates[0] < 0.5 * total
    assert rates[-1] > 0.95 * total


def test_one_hiccup_moves_nothing():
    follower = AdaptivePlanner(LINEAR)
    drive(follower, LINEAR, [1, 1, 1], 5)
    before = planned(follower)
    drive(follower, LINEAR, [1, 9, 1], 1)
    assert planned(follower) == before
    drive(follower, LINEAR, [1, 9, 1], 1)
    assert planned(follower) != before


def test_a_machine_that_recovers_gets_its_rows_back():
    follower = AdaptivePlanner(LINEAR)
    before = planned(follower)
    drive(follower, LINEAR, [3, 1, 1], 6)
    for plan in (planned(follower), follower.share(64)):
        assert plan.rows[0] < before.rows[0]
    assert follower.slowness[0] == pytest.approx(3)
    drive(follower, LINEAR, [1, 1, 1], 6)
    assert planned(follower) == before


def test_an_idle_rank_is_asked_again_after_a_while():
    follower = AdaptivePlanner([UNKNOWN] * 2)
    assert planned(follower, 4).rows == (2, 2)
    drive(follower, [UNKNOWN] * 2, [1, 50], 3, rows=4)
    assert planned(follower, 4).rows == (4, 0)
    idle = 0
    while planned(follower, 4).rows[1] == 0:
        drive(follower, [UNKNOWN] * 2, [1, 1], 1, rows=4)
        idle += 1
    assert 20 <= idle <= 100
    drive(follower, [UNKNOWN] * 2, [1, 1], 120, rows=4)
    assert planned(follower, 4).rows == (2, 2)


SLOW = [Speed((1,), (0.5,)), Speed((1,), (1.0,)), Speed((1,), (2.0,))]


def test_a_round_follows_the_machines_too():
    follower = AdaptivePlanner(SLOW)
    drive(follower, SLOW, [1, 1, 1], 1, rows=9, every=8)
    before, after = drive(follower, SLOW, [1, 3, 1], 2, rows=9, every=8)
    total = 2 + 1 / 3 + 1 / 2
    assert before < 0.7 * total
    assert after > 0.95 * total


@pytest.mark.parametrize("every", [1, 2, 4, 8])
def test_what_the_first_steps_find_not_ready_moves_nothing(every):
    follower = AdaptivePlanner(SLOW)
    before = follower.plans(0, [9] * every)
    seconds = computed(before, SLOW, [1, 1, 1])
    seconds[0] += 60
    follower.observe(before, np.sum([plan.rows for plan in before], axis=0), seconds)
    assert follower.plans(every, [9] * every) == before


def test_rounds_that_vary_a_little_are_not_shared_out_anew():
    follower = AdaptivePlanner(LINEAR)
    told = set()
    for seed in range(50):
        told.add(follower.plans(0, [64] * 8))
        drive(follower, LINEAR, [1, 1, 1], 1, noise=0.01, seed=seed, every=8)
    assert len(told) == 1


def test_the_plans_of_a_few_sizes_are_held():
    follower = AdaptivePlanner(LINEAR)
    for rows in range(1, 50):
        follower.plans(0, [64] * 15 + [rows])
    assert len(follower._recent_plans) < 20


def test_a_rank_that_idles_in_rounds_is_asked_again_in_one_of_their_steps():
    follower = AdaptivePlanner([UNKNOWN] * 2)
    drive(follower, [UNKNOWN] * 2, [1, 500], 1, rows=4, every=10)
    rounds = 0
    while not any(asked := [plan.rows[1] for plan in follower.plans(0, [4] * 10)]):
        drive(follower, [UNKNOWN] * 2, [1, 500], 1, rows=4, every=10)
        rounds += 1
    assert rounds == 5
    assert sum(asked) == 1


def test_short_rows_do_not_look_like_a_fast_rank():
    follower = AdaptivePlanner(LINEAR, full_row=100)
    plan = planned(follower)
    half = [rows * 50 for rows in plan.rows]
    follower.observe((plan,), half, [each / 2 for each in computed((plan,), LINEAR, [1, 1, 1])])
    assert follower.slowness == pytest.approx((1, 1, 1))


def test_after_a_memory_error_the_rank_takes_smaller_pieces():
    curve = Speed((1, 2, 4), (1.0, 1.2, 1.6))
    follower = AdaptivePlanner([curve, curve])
    assert planned(follower).micro_batch == (4, 4)
    follower.fits_no_more_than(1, 2)
    plan = planned(follower)
    assert plan.micro_batch == (4, 2)
    assert plan.rows[0] > plan.rows[1]


@pytest.mark.parametrize(
    ("exchange", "moves"), [(0.0, True), (2.0, True), (25.0, False), (600.0, False)]
)
def test_where_the_exchange_takes_most_of_a_step_no_rows_move(exchange, moves):
    """A machine that rests most of the time computes faster than it would with more rows."""
    follower = AdaptivePlanner(LINEAR)
    plans = before = follower.plans(0, [64])
    for _ in range(6):
        seconds = computed(plans, LINEAR, [1.0, 0.5, 1.0])
        rows = np.sum([plan.rows for plan in plans], axis=0)
        follower.observe(plans, rows, seconds, exchange)
        plans = follower.plans(0, [64])
    assert (plans != before) == moves
