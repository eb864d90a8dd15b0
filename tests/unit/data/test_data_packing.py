"""Packing and holding out: properties that hold for any data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.data.documents import held_out_mask
from hearth.data.packing import pack

CAPACITIES = st.integers(1, 64)
LENGTHS = CAPACITIES.flatmap(
    lambda capacity: st.tuples(
        st.just(capacity), st.lists(st.integers(1, capacity), max_size=80).map(np.array)
    )
).map(lambda drawn: (drawn[0], drawn[1].astype(np.int64)))


@given(LENGTHS, st.integers(0, 5))
def test_every_document_is_in_one_row_and_no_row_is_too_long(drawn, seed):
    capacity, lengths = drawn
    rows = pack(lengths, capacity, seed)
    assert sorted(document for row in rows for document in row) == list(range(len(lengths)))
    assert all(0 < lengths[row].sum() <= capacity for row in rows)


@given(LENGTHS)
def test_no_two_rows_would_fit_into_one(drawn):
    capacity, lengths = drawn
    filled = sorted(int(lengths[row].sum()) for row in pack(lengths, capacity, 0))
    assert sum(filled[:2]) > capacity or len(filled) < 2


def test_a_hundred_thousand_documents_take_seconds_at_most():
    lengths = np.random.default_rng(0).integers(20, 900, 100_000)
    rows = pack(lengths, 1024, 0)
    assert lengths.sum() / (len(rows) * 1024) > 0.99


HASHES = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60).map(
    lambda drawn: np.array(drawn, dtype=np.uint64)
)
FRACTIONS = st.sampled_from([1e-18, 0.1, 0.5, 0.99])  # of the first none is chosen by its hash


def unmarked(hashes: np.ndarray) -> np.ndarray:
    return np.full(len(hashes), -1, dtype=np.int8)


@given(HASHES, FRACTIONS, st.randoms())
def test_the_side_of_a_document_depends_on_its_content_and_not_on_its_place(
    hashes, fraction, random
):
    twice = np.concatenate([hashes, hashes])
    shuffled = random.sample(range(len(twice)), len(twice))
    mask = held_out_mask(twice, unmarked(twice), fraction)
    assert (mask[: len(hashes)] == mask[len(hashes) :]).all()
    assert (mask[shuffled] == held_out_mask(twice[shuffled], unmarked(twice), fraction)).all()


@given(HASHES, FRACTIONS)
def test_something_is_always_held_out_unless_nothing_is_asked_for(hashes, fraction):
    assert held_out_mask(hashes, unmarked(hashes), fraction).any()
    assert not held_out_mask(hashes, unmarked(hashes), 0).any()


def test_the_fraction_is_about_what_was_asked_for():
    hashes = np.random.default_rng(0).integers(0, 2**64, 10_000, dtype=np.uint64)
    assert held_out_mask(hashes, unmarked(hashes), 0.1).mean() == pytest.approx(0.1, abs=0.01)


@given(HASHES, st.floats(0, 1), st.data())
def test_marks_decide_alone(hashes, fraction, data):
    marks = data.draw(
        st.lists(st.sampled_from([0, 1, -1]), min_size=len(hashes), max_size=len(hashes))
    )
    marks = np.array(marks, dtype=np.int8)
    if (marks >= 0).any():
        assert (held_out_mask(hashes, marks, fraction) == (marks == 1)).all()
