"""Rows of a data set that is read from the Hub while it is trained on."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from support.facts import assert_names, refuses
from support.tiny_model import make_tokenizer

import datasets
from hearth.base.errors import DataError
from hearth.data import stream
from hearth.data.stream import load_stream

COMMIT = "c" * 40
EXAMPLES = 100


class Hub:
    """An iterable data set of the datasets library, which fails when it is told to."""

    def __init__(self, records: list[dict[str, str | None]]) -> None:
        self._rows = datasets.Dataset.from_list(records).to_iterable_dataset(num_shards=3)
        self.state_dict, self.load_state_dict = self._rows.state_dict, self._rows.load_state_dict
        self.failures = 0

    def __iter__(self):
        for row in self._rows:
            if self.failures:
                self.failures -= 1
                raise ConnectionError("the cable")
            yield row


def texts(**changed: str | None) -> list[dict[str, str | None]]:
    """Return examples of unequal length; `changed` are those with another text, by number."""
    records = [{"text": f"text {n} " * (1 + n % 5)} for n in range(1, EXAMPLES + 1)]
    for number, text in changed.items():
        records[int(number.strip("_")) - 1] = {"text": text}
    return records


@pytest.fixture
def load(monkeypatch):
    """Return a function that opens a stream of records in windows of 30 examples."""
    monkeypatch.setattr(stream, "WINDOW", 30)
    monkeypatch.setattr(stream, "WAITS", (0.001, 0.001))
    tokenizer = make_tokenizer()

    def loaded(records, commit=COMMIT, **changes):
        hub, said = Hub(records), []
        monkeypatch.setattr(stream, "open_stream", lambda data, revision: (hub, commit))
        options = {"sequence_length": 64, "packing": True, "held_out": 0.1, "seed": 1} | changes
        data = load_stream("owner/words", tokenizer, revision=None, say=said.append, **options)
        return data, hub, said

    return loaded


def sources(rows, numbers) -> list[int]:
    """Return the examples in these rows, in their order."""
    return [int(each.rpartition(":")[2]) for row in numbers for each in rows.sources(row)]


def equal(one, other, numbers) -> bool:
    return all(
        np.array_equal(one.batch([row]).input_ids, other.batch([row]).input_ids)
        and one.sources(row) == other.sources(row)
        for row in numbers
    )


def rows_of_pass(data) -> int:
    """Return the number of rows in the first pass, which has four windows."""
    return next(
        row
        for row in itertools.count()
        if data.train.sources(row) and data.train.position(row)["window"] == 4
    )


@pytest.mark.parametrize("packing", [True, False])
def test_a_pass_has_every_example_once_but_for_those_held_out_and_then_begins_again(load, packing):
    data, *_ = load(texts(), packing=packing)
    held = set(sources(data.held_out, range(len(data.held_out))))
    assert held
    assert max(held) <= 30
    count = rows_of_pass(data)
    first = sources(data.train, range(count))
    assert Counter(first) == Counter(set(range(1, EXAMPLES + 1)) - held)
    assert first != sorted(first)
    second = sources(data.train, range(count, 2 * count + 5))[: len(first)]
    assert set(second) == set(first)
    assert second != first


def test_any_order_of_reading_gives_the_same_rows_and_columns(load):
    one, other = load(texts())[0], load(texts())[0]
    numbers = np.arange(60)
    backwards = one.train.label_tokens[numbers[::-1]][::-1]
    assert np.array_equal(backwards, other.train.label_tokens[numbers])
    assert equal(one.train, other.train, numbers)
    another = load(texts(), commit="d" * 40)[0]
    assert one.report.fingerprint == other.report.fingerprint != another.report.fingerprint
    batch = one.train.batch(numbers)
    assert sum(batch.packed_seq_lengths) == batch.input_ids.size
    assert one.train.tokens[numbers].max() == batch.input_ids.shape[1]
    assert (one.train.batch([]).labels == -100).all()
    assert not equal(one.train, load(texts(), seed=2)[0].train, numbers)


@pytest.mark.parametrize("row", [0, 5, 17, 40, 100])
def test_a_stream_goes_on_at_a_row(load, row):
    data, *_ = load(texts())
    data.train.sources(row)
    position = json.loads(json.dumps(data.train.position(row)))
    resumed, *_ = load(texts())
    resumed.train.go_to(position)
    assert equal(resumed.train, data.train, range(row, row + 60))


def test_only_the_windows_in_use_are_held(load):
    data, *_ = load(texts())
    for row in range(0, 200, 10):
        data.train.sources(row + 9)
        data.train.forget(row)
        assert len(data.train._windows) <= 3
    position = data.train.position(195)
    assert position["row"] <= 195
    data.train.go_to(position)
    assert data.train.sources(195)


def test_an_example_equal_to_a_held_out_one_is_not_trained_on(load):
    data, *_ = load(texts())
    (held, *_) = sources(data.held_out, [0])
    same = texts()[held - 1]["text"]
    again, *_ = load(texts(_70=same))
    count = 2 * rows_of_pass(again)
    assert {held, 70} & set(sources(again.train, range(count))) == set()


def test_an_invalid_example_is_named_and_left_out_but_in_the_first_window_refused(load):
    data, _, said = load(texts(_70=None))
    assert 70 not in sources(data.train, range(2 * rows_of_pass(data)))
    (named,) = {line for line in said if "owner/words:70" in line}
    assert_names(named, "owner/words:70")
    with refuses(DataError, "owner/words:7"):
        load(texts(_7=None))


def test_a_hub_that_fails_for_a_while_changes_nothing(load):
    expected, *_ = load(texts())
    data, hub, said = load(texts())
    hub.failures = 2
    assert equal(data.train, expected.train, range(60))
    assert len([line for line in said if "the cable" in line]) == 2


def test_a_hub_that_does_not_come_back_is_named_with_the_example(load):
    data, hub, _ = load(texts())
    hub.failures = 99
    with refuses(DataError, "owner/words", "example 30", "the cable", "resume"):
        data.train.sources(50)


def test_a_hub_that_does_not_answer_at_first_is_named(monkeypatch):
    """Stand-in for the Hub: a closed loopback port."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    options = {"held_out": 0, "seed": 1, "say": print, "sequence_length": 64, "packing": True}
    with refuses(DataError, "owner/words", "streaming=off"):
        load_stream("owner/words", make_tokenizer(), revision=None, **options)
