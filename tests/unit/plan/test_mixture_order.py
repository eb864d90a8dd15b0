"""The order of the rows of a mixture."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.config import Settings
from hearth.data.packing import parts_of_epoch
from hearth.plan.row_order import RowOrder, choose_order

SETS = st.lists(
    st.tuples(st.floats(0.05, 1), st.integers(20, 300), st.integers(10, 50)),
    min_size=2,
    max_size=4,
)
"""Share, rows and learned tokens a row."""


def mixed(sets, global_batch=7, seed=1):
    shares, rows, tokens = zip(*sets, strict=True)
    parts = parts_of_epoch(shares, rows, [n * each for n, each in zip(rows, tokens, strict=True)])
    return RowOrder(sum(rows), global_batch, seed, parts)


def drawn(order, epochs):
    """Return the row numbers of these epochs, in their order."""
    return np.concatenate([order.batch(step) for step in range(epochs * order.steps_per_epoch)])


@given(SETS)
def test_each_set_gets_its_share_of_the_learned_tokens(sets):
    order = mixed(sets)
    owner = np.repeat(range(len(sets)), [rows for _, rows, _ in sets])
    counts = np.bincount(owner[order.epoch(0)], minlength=len(sets))
    learned = counts * [tokens for *_, tokens in sets]
    wanted = np.array([share for share, *_ in sets])
    rounding = 50 * len(sets) / learned.sum()
    assert learned / learned.sum() == pytest.approx(wanted / wanted.sum(), abs=rounding)
    assert abs(len(order.epoch(0)) - order.rows) <= len(sets)


@given(SETS)
def test_no_row_of_a_set_comes_again_before_all_others_of_it_came(sets):
    order, first = mixed(sets), 0
    rows_drawn = drawn(order, 3)
    for _, rows, _ in sets:
        own = rows_drawn[(rows_drawn >= first) & (rows_drawn < first + rows)]
        for begin in range(0, len(own) - rows + 1, rows):
            assert sorted(own[begin : begin + rows]) == list(range(first, first + rows))
        assert len(set(own)) == min(rows, len(own))
        first += rows


@given(SETS, st.integers(5, 40))
def test_every_stretch_has_the_shares_of_the_whole(sets, length):
    order, first = mixed(sets), 0
    epoch = order.epoch(1)
    for (_, rows, _), part in zip(sets, order.parts, strict=True):
        own = (epoch >= first) & (epoch < first + rows)
        stretch = np.convolve(own, np.ones(length, int), "valid")
        assert np.abs(stretch - length * part.per_epoch / len(epoch)).max() <= len(sets)
        first += rows


def test_seed_and_epoch_give_the_order_and_the_steps_cover_it():
    sets = [(0.7, 40, 10), (0.3, 30, 20)]
    order = mixed(sets)
    assert np.array_equal(drawn(order, 2), np.concatenate([order.epoch(0), order.epoch(1)]))
    assert np.array_equal(order.epoch(0), mixed(sets).epoch(0))
    assert not np.array_equal(order.epoch(0), order.epoch(1))
    assert not np.array_equal(order.epoch(0), mixed(sets, seed=2).epoch(0))
    sizes = [order.size(step) for step in range(2 * order.steps_per_epoch)]
    assert sizes == [len(order.batch(step)) for step in range(len(sizes))]


@pytest.mark.parametrize("streaming", [False, True])
def test_what_ranks_must_agree_on_tells_another_order(monkeypatch, streaming):
    """As another version of NumPy may draw it."""

    def identity(seed, rows=1000):
        given = Settings(model="m", dataset="d", seed=seed, global_batch=4, streaming=streaming)
        return choose_order(given, rows).identity()

    assert identity(1) == identity(1) != identity(2)
    drawn = np.random.default_rng
    old = lambda seed: drawn([*seed, 1])  # noqa: E731
    known = identity(3, 1001)
    monkeypatch.setattr("numpy.random.default_rng", old)
    assert identity(3, 1001 if streaming else 1002) != known
