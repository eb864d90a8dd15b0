"""Who computes which rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.errors import ConfigError
from hearth.plan import Order, divide, micro_batches, shares_for, slice_of

shares = st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any)


def slowest(counts, speeds):
    return max(
        (c / s if s else (float("inf") if c else 0)) for c, s in zip(counts, speeds, strict=True)
    )


@given(st.integers(0, 14), shares)
def test_no_division_finishes_earlier(rows, speeds):
    counts = divide(rows, speeds)
    assert sum(counts) == rows
    best = min(
        slowest(option, speeds)
        for option in itertools.product(range(rows + 1), repeat=len(speeds))
        if sum(option) == rows
    )
    assert slowest(counts, speeds) == pytest.approx(best)


@given(st.integers(0, 500), st.integers(1, 9))
def test_equal_shares_differ_by_at_most_one_row(rows, ranks):
    counts = divide(rows, [1] * ranks)
    assert max(counts) - min(counts) <= 1


def test_speeds_four_two_one_share_seven_rows_like_their_speeds():
    assert divide(7, [4, 2, 1]) == (4, 2, 1)


def test_a_rank_with_share_zero_gets_no_rows():
    assert divide(5, [1, 0, 1]) == (3, 0, 2)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 99), shares)
def test_an_epoch_shows_every_row_exactly_once_whatever_the_split(rows, batch, seed, speeds):
    order = Order(rows, batch, seed)
    seen = []
    for step in range(order.steps_per_epoch):
        numbers = order.batch(step)
        counts = divide(len(numbers), speeds)
        for rank in range(len(speeds)):
            for piece in micro_batches(numbers[slice_of(rank, counts)], 3):
                seen.extend(piece.tolist())
    assert sorted(seen) == list(range(rows))


def test_epochs_are_shuffled_anew_and_repeatably():
    order = Order(rows=50, global_batch=50, seed=3)
    assert not np.array_equal(order.batch(0), order.batch(1))
    assert np.array_equal(order.batch(1), Order(50, 50, 3).batch(1))


def test_the_last_batch_of_an_epoch_holds_the_rest():
    order = Order(rows=10, global_batch=4, seed=0)
    assert [len(order.batch(step)) for step in range(3)] == [4, 4, 2]
    assert order.steps(epochs=2, max_steps=None) == 6
    assert order.steps(epochs=2, max_steps=5) == 5


def test_a_split_that_does_not_fit_the_ranks_is_refused_with_both_numbers():
    with pytest.raises(ConfigError, match=r"4:2:1 has 3 shares, but the run has 2 ranks"):
        shares_for((4, 2, 1), world_size=2)
    assert shares_for(None, 3) == (1, 1, 1)
