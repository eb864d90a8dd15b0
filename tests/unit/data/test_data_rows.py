"""Rows: packed and held out; no token is lost, and none is predicted across documents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.data.documents import Documents, held_out_mask
from hearth.data.load import packed_rows
from hearth.data.packing import pack
from hearth.data.rows import IGNORED, PackedRows, cut_to_length

PAD = 9999


def make_documents(lengths: list[int], plain: list[bool]) -> Documents:
    """Return documents of ever new tokens; a chat learns its second half."""
    learned = [
        np.arange(length) >= (0 if text else length // 2)
        for length, text in zip(lengths, plain, strict=True)
    ]
    count = len(lengths)
    return Documents(
        ids=np.arange(sum(lengths), dtype=np.int32),
        learned=np.concatenate([np.empty(0, bool), *learned]),
        offsets=np.cumsum([0, *lengths], dtype=np.int64),
        targets=np.array([int(flags[1:].sum()) for flags in learned], dtype=np.int64),
        lines=np.arange(count, dtype=np.int64) + 101,
        hashes=np.arange(count, dtype=np.uint64),
        marks=np.full(count, -1, dtype=np.int8),
        plain=np.array(plain, dtype=bool),
    )


def make_rows(documents: Documents, longest: int, packed: bool = True) -> PackedRows:
    pieces = cut_to_length(documents, np.arange(len(documents)), longest).pieces
    rows = pack(pieces.lengths, longest, 0) if packed else [[n] for n in range(len(pieces.starts))]
    return PackedRows(documents, pieces, rows, "x.jsonl", PAD)


DOCUMENTS = st.lists(st.tuples(st.integers(2, 40), st.booleans()), min_size=1, max_size=30).map(
    lambda drawn: make_documents([length for length, _ in drawn], [text for _, text in drawn])
)
LONGEST = st.integers(2, 40)


@given(DOCUMENTS, LONGEST, st.booleans())
def test_every_token_that_can_be_learned_is_learned_once(documents, longest, packed):
    rows = make_rows(documents, longest, packed)
    fits = documents.plain | (documents.lengths <= longest)
    learnable = documents.learned.copy()
    learnable[documents.offsets[:-1]] = False
    wanted = np.flatnonzero(learnable & np.repeat(fits, documents.lengths))
    if not len(rows):
        assert not fits.any()
        return
    labels = rows.batch(range(len(rows))).labels
    assert sorted(labels[labels != IGNORED].tolist()) == wanted.tolist()


@given(DOCUMENTS, LONGEST)
def test_a_batch_is_consistent_and_has_as_many_tokens_as_its_rows_count(documents, longest):
    rows = make_rows(documents, longest)
    if not len(rows):
        return
    batch = rows.batch(range(len(rows)))
    shape = (len(rows), rows.tokens.max())
    for array in (batch.input_ids, batch.labels, batch.position_ids):
        assert array.shape == shape
        assert array.dtype == np.int64
    assert sum(batch.packed_seq_lengths) == batch.input_ids.size
    restarts = np.concatenate([np.arange(length) for length in batch.packed_seq_lengths])
    assert (batch.position_ids.ravel() == restarts).all()
    assert (batch.labels[batch.position_ids == 0] == IGNORED).all()
    assert (batch.labels[batch.input_ids == PAD] == IGNORED).all()
    seen = batch.labels != IGNORED
    assert (batch.labels[seen] == batch.input_ids[seen]).all()
    assert (seen.sum(axis=1) == rows.label_tokens).all()
    assert ((batch.input_ids != PAD).sum(axis=1) == rows.tokens).all()
    assert (rows.tokens <= longest).all()


@given(DOCUMENTS, LONGEST)
def test_without_rows_a_batch_is_short_and_teaches_nothing(documents, longest):
    rows = make_rows(documents, longest)
    blank = rows.batch(np.array([], dtype=np.int64))
    assert (blank.labels == IGNORED).all()
    assert blank.input_ids.shape == blank.position_ids.shape == (1, blank.packed_seq_lengths[0])


@given(DOCUMENTS, LONGEST)
def test_a_chat_is_never_cut_and_its_sources_are_in_order(documents, longest):
    rows = make_rows(documents, longest)
    for row in range(len(rows)):
        batch, at = rows.batch([row]), 0
        for source, length in zip(rows.sources(row), batch.packed_seq_lengths, strict=True):
            document = int(source.removeprefix("x.jsonl:")) - 101
            start, stop = documents.offsets[document : document + 2]
            piece = batch.input_ids[0, at : at + length].tolist()
            assert set(piece) <= set(range(start, stop))
            assert documents.plain[document] or piece == list(range(start, stop))
            at += length


LENGTHS_OF_PAIRS = st.lists(st.tuples(st.integers(2, 40), st.integers(2, 40)), max_size=20)


@given(LENGTHS_OF_PAIRS, st.integers(4, 80), st.booleans())
def test_every_pair_that_fits_is_whole_in_one_row(drawn, longest, packed):
    lengths = [length for pair in drawn for length in pair]
    documents = replace(
        make_documents(lengths, [False] * len(lengths)),
        liked=np.tile(np.array([1, 0], np.int8), len(drawn)),
    )
    everything = np.ones(len(lengths), dtype=bool)
    rows, cut = packed_rows(documents, everything, "x", PAD, longest, packed, 1, paired=True)
    fits = [at for at, pair in enumerate(drawn) if sum(pair) <= longest]
    assert len(cut.dropped) == 2 * (len(drawn) - len(fits))
    found, numbers = list[int](), list[int]()
    for row in range(len(rows)):
        batch, at = rows.batch([row]), 0
        assert batch.input_ids.size == rows.tokens[row] <= longest
        assert len(batch.packed_seq_lengths) == rows.answers[row]
        numbers += (own := rows.pieces_of([row]).tolist())
        for piece, length in zip(own, batch.packed_seq_lengths, strict=True):
            first = int(batch.input_ids[0, at])
            document = int(np.flatnonzero(documents.offsets == first)[0])
            assert length == lengths[document]
            assert rows.liked[piece] == (document % 2 == 0)
            found.append(document)
            at += length
        assert [each % 2 for each in found[-len(own) :]] == [0, 1] * (len(own) // 2)
        assert all(one + 1 == other for one, other in zip(found[::2], found[1::2], strict=True))
        good = [rows.documents(99)[piece].learned.sum() for piece in own[::2]]
        assert rows.liked_tokens[row] == sum(good)
        assert packed or len(own) == 2
    assert sorted(found) == [each for at in fits for each in (2 * at, 2 * at + 1)]
    assert sorted(numbers) == [*range(len(found))]
    both = rows.pieces_of(range(len(rows)))
    assert both.dtype == np.int64
    assert both.tolist() == numbers


@given(
    st.lists(st.tuples(st.integers(2, 40), st.booleans()), min_size=4, max_size=20),
    st.booleans(),
    st.integers(0, 5),
)
def test_mismatched_rows_keep_each_question_and_use_each_answer_once(drawn, packed, seed):
    lengths = [length for length, _ in drawn]
    documents = replace(
        make_documents(lengths, [False] * len(drawn)),
        liked=np.array([liked for _, liked in drawn], dtype=np.int8),
    )
    rows, _ = packed_rows(documents, np.ones(len(drawn), bool), "x", PAD, 40, packed, seed)
    other = rows.mismatched(range(len(rows)))
    assert (rows.tokens >= (other.input_ids != PAD).sum(axis=1)).all()
    starts, answers = documents.offsets[:-1], list[int]()
    for row in range(len(rows)):
        batch, at = rows.mismatched([row]), 0
        assert len(batch.packed_seq_lengths) == rows.answers[row]
        for piece, length in zip(rows.pieces_of([row]), batch.packed_seq_lengths, strict=True):
            ids, labels = (a[0, at : at + length] for a in (batch.input_ids, batch.labels))
            question = lengths[piece] // 2
            assert (ids[:question] == starts[piece] + np.arange(question)).all()
            assert (labels[:question] == IGNORED).all()
            assert (labels[max(1, question) :] == ids[max(1, question) :]).all()
            partner = int(np.searchsorted(starts, ids[question], side="right")) - 1
            assert partner != piece
            assert ids[question] == starts[partner] + lengths[partner] // 2
            answers.append(partner)
            at += length
    assert sorted(answers) == [*range(len(drawn))]
    again, _ = packed_rows(documents, np.ones(len(drawn), bool), "x", PAD, 20, False, seed)
    if len(again.partners) == len(drawn):
        assert (again.partners == rows.partners).all()


def test_long_texts_are_cut_and_long_chats_dropped_and_both_counted():
    documents = make_documents([10, 10, 3, 10], [True, False, False, True])
    cut = cut_to_length(documents, np.arange(4), 4)
    assert (len(cut.cut), len(cut.dropped)) == (2, 1)
    stretches = list(zip(cut.pieces.starts, cut.pieces.stops, strict=True))
    assert stretches == [(0, 4), (3, 7), (6, 10), (20, 23), (23, 27), (26, 30), (29, 33)]


def test_the_fingerprint_sees_tokens_labels_rows_and_preferences():
    documents = make_documents([4, 4, 4, 4], [False] * 4)
    other = make_documents([4, 4, 4, 4], [False, True, False, False])
    judged = (
        replace(documents, liked=np.array(each, np.int8)) for each in ([1, 0] * 2, [0, 1] * 2)
    )
    pairs = ((documents, 8), (documents, 4), (other, 8), *((each, 8) for each in judged))
    *prints, again = (make_rows(*pair).fingerprint() for pair in (*pairs, pairs[0]))
    assert len(set(prints)) == 5
    assert again == prints[0]


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
