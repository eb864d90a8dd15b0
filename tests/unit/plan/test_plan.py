"""Which rows make up a step, and who computes which of them."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses

from hearth.base.errors import ConfigError
from hearth.plan.row_order import RowOrder
from hearth.plan.speed import Speed, micro_batches, pieces_of
from hearth.plan.split import Plan, better_global_batch, by_shares, by_speed, seconds_of, shares_for

shares = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)
seconds = st.floats(0.01, 10) | st.integers(1, 3)  # of these many are alike


@st.composite
def speeds(draw) -> Speed:
    """A measured curve with up to four sizes; it may dip, as a measurement does."""
    count = draw(st.integers(1, 4))
    return Speed(tuple(2**k for k in range(count)), tuple(draw(seconds) for _ in range(count)))


def divisions(rows: int, ranks: int):
    """Return every way to share `rows` rows."""
    return [
        option for option in itertools.product(range(rows + 1), repeat=ranks) if sum(option) == rows
    ]


def slowest(counts, speeds):
    return max(
        (c / s if s else (float("inf") if c else 0)) for c, s in zip(counts, speeds, strict=True)
    )


# ---- by shares ----------------------------------------------------------------------------------


@given(st.integers(0, 14), shares)
def test_no_division_by_shares_finishes_earlier(rows, speeds):
    counts = by_shares(rows, speeds)
    assert sum(counts) == rows
    best = min(slowest(option, speeds) for option in divisions(rows, len(speeds)))
    assert slowest(counts, speeds) == pytest.approx(best)


@given(st.integers(0, 500), st.integers(1, 9))
def test_equal_shares_differ_by_at_most_one_row_and_the_first_ranks_have_it(rows, ranks):
    counts = by_shares(rows, [1] * ranks)
    assert max(counts) - min(counts) <= 1
    assert list(counts) == sorted(counts, reverse=True)


def test_a_split_that_does_not_fit_the_ranks_is_refused_with_both_numbers():
    with refuses(ConfigError, "split", "4:2:1", "3 shares", "2 ranks"):
        shares_for((4, 2, 1), world_size=2)
    assert shares_for(None, 3) == (1, 1, 1)


# ---- by measured speed --------------------------------------------------------------------------


@given(st.integers(1, 8), st.lists(speeds(), min_size=1, max_size=3))
def test_no_division_by_speed_finishes_earlier(rows, ranks):
    plans = by_speed([rows], ranks)
    (plan,) = plans
    assert sum(plan.rows) == rows
    assert min(plan.rows) >= 0
    every = [
        seconds_of((Plan(option, plan.micro_batch),), ranks)
        for option in divisions(rows, len(ranks))
    ]
    assert seconds_of(plans, ranks) == pytest.approx(min(every))


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.lists(speeds(), min_size=1, max_size=4),
)
def test_a_round_is_never_over_later_than_its_steps_one_by_one(sizes, ranks):
    plans = by_speed(sizes, ranks)
    assert [sum(plan.rows) for plan in plans] == sizes
    assert plans[0] == by_speed(sizes[:1], ranks)[0]
    one_by_one = sum(seconds_of(by_speed([rows], ranks), ranks) for rows in sizes)
    assert seconds_of(plans, ranks) <= one_by_one * (1 + 1e-9)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=8),
    st.lists(st.floats(0.1, 10), min_size=1, max_size=4),
)
def test_where_every_row_takes_as_long_a_round_is_shared_like_one_large_step(sizes, seconds):
    ranks = [Speed((1,), (each,)) for each in seconds]
    as_one = seconds_of(by_speed([sum(sizes)], ranks), ranks)
    assert seconds_of(by_speed(sizes, ranks), ranks) == pytest.approx(as_one)


def test_a_rank_takes_rows_in_the_size_that_is_fastest():
    # Eight at once take no longer than four; sixteen are slower a row.
    gpu, cpu = Speed((1, 2, 4, 8, 16), (1, 1, 1, 1, 4)), Speed((1, 2), (1, 2))
    (plan,) = by_speed([20], [gpu, cpu])
    assert plan.micro_batch == (8, 1)


def test_a_thousand_ranks_are_planned_in_under_a_second():
    random = np.random.default_rng(0)
    ranks = [
        Speed((1, 2, 4, 8), tuple(np.cumsum(random.uniform(0.1, 1, 4)).tolist()))
        for _ in range(1000)
    ]
    began = time.process_time()
    (plan,) = by_speed([4096], ranks)
    assert time.process_time() - began < 1
    assert sum(plan.rows) == 4096


@given(speeds(), st.integers(1, 60))
def test_more_rows_never_take_less_time(speed, most):
    times = speed.times(most)
    assert times[0] == 0
    assert (np.diff(times) >= 0).all()
    assert speed.of_rows(most) == times[-1]


def test_a_smaller_memory_leaves_the_smaller_sizes():
    speed = Speed((1, 2, 4), (1.0, 1.5, 2.0))
    assert speed.no_larger_than(3) == Speed((1, 2), (1.0, 1.5))
    assert speed.no_larger_than(0) == Speed((1,), (1.0,))
    assert speed.micro_batch == 4
    assert speed.rows_per_second == 2


@pytest.mark.parametrize(
    ("sizes", "times"), [((), ()), ((2,), (1,)), ((1, 1), (1, 1)), ((1,), (0,)), ((1, 2), (1,))]
)
def test_a_curve_that_cannot_be_is_refused(sizes, times):
    with pytest.raises(ValueError):
        Speed(sizes, times)


# ---- advice -------------------------------------------------------------------------------------


def lost_to_whole_rows(rows, speeds, exchange):
    """Return the part of a step's time that is lost because a row cannot be cut in two."""
    computed = seconds_of(by_speed([rows], speeds), speeds)
    ideal = rows / sum(speed.rows_per_second for speed in speeds)
    return 1 - (ideal + exchange) / (computed + exchange)


def test_a_step_of_too_few_rows_gets_a_better_size_proposed():
    ranks = [Speed((1,), (1.0,)), Speed((1,), (2.0,)), Speed((1,), (4.0,))]
    assert better_global_batch(7, ranks, exchange=0) is None
    assert better_global_batch(8, ranks, exchange=0) == 7
    assert better_global_batch(12, ranks, exchange=0) == 14  # the nearest of 7 and 14


@given(st.integers(2, 40), st.lists(speeds(), min_size=1, max_size=3), st.floats(0, 5))
def test_a_better_size_is_better_and_only_proposed_where_much_is_lost(rows, ranks, exchange):
    better = better_global_batch(rows, ranks, exchange)
    if better is not None:
        assert rows // 2 <= better <= 2 * rows
        assert lost_to_whole_rows(rows, ranks, exchange) > 0.03
        assert lost_to_whole_rows(better, ranks, exchange) <= 0.03 + 1e-9


# ---- the order ----------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 99), shares)
def test_an_epoch_shows_every_row_exactly_once_whatever_the_split(rows, batch, seed, speeds):
    order = RowOrder(rows, batch, seed)
    seen = []
    for step in range(order.steps_per_epoch):
        numbers = order.batch(step)
        plan = Plan(by_shares(len(numbers), speeds), (3,) * len(speeds))
        for rank in range(len(speeds)):
            for piece in pieces_of(numbers[plan.slice_of(rank)], plan.pieces(rank)):
                assert 1 <= len(piece) <= 3
                seen.extend(piece.tolist())
    assert sorted(seen) == list(range(rows))


@given(st.integers(0, 200), st.integers(1, 20))
def test_micro_batches_are_few_and_nearly_equal(rows, most):
    sizes = micro_batches(rows, most)
    assert sum(sizes) == rows
    assert len(sizes) == -(-rows // most)
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(st.integers(0, 60), shares, st.integers(1, 9))
def test_ranks_that_compute_together_have_as_many_micro_batches_each(rows, speeds, most):
    plan = Plan(by_shares(rows, speeds), (most,) * len(speeds), together=True)
    own = Plan(plan.rows, plan.micro_batch)
    assert plan.turns == max(len(own.pieces(rank)) for rank in range(len(speeds)))
    for rank, count in enumerate(plan.rows):
        sizes = plan.pieces(rank)
        assert len(sizes) == plan.turns
        assert sum(sizes) == count
        assert not sizes or max(sizes) - min(sizes) <= 1 <= most >= max(sizes)
        pieces = pieces_of(np.arange(count), sizes)
        assert [len(piece) for piece in pieces] == list(sizes)
    assert plan.row_by_row().turns == max(plan.rows)
    assert (own.turns, own.row_by_row().turns) == (0, 0)


def test_epochs_are_shuffled_anew_and_repeatably():
    order = RowOrder(rows=50, global_batch=50, seed=3)
    assert not np.array_equal(order.batch(0), order.batch(1))
    assert np.array_equal(order.batch(1), RowOrder(50, 50, 3).batch(1))


def test_the_last_batch_of_an_epoch_holds_the_rest():
    order = RowOrder(rows=10, global_batch=4, seed=0)
    assert [len(order.batch(step)) for step in range(6)] == [4, 4, 2] * 2
    assert [order.size(step) for step in range(6)] == [4, 4, 2] * 2
    assert order.steps(epochs=2, max_steps=None) == 6
    assert order.steps(epochs=2, max_steps=5) == 5
    assert order.steps(epochs=1.6, max_steps=None) == 5  # the nearest whole number of steps
