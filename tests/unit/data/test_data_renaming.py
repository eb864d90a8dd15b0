"""The setting `columns`: names of columns in the data for those that Hearth reads."""

from __future__ import annotations

import json

import pytest
from support.facts import assert_names, refuses
from support.tiny_model import make_tokenizer

import datasets
from hearth.base.errors import DataError
from hearth.data import stream
from hearth.data.load import load_data
from hearth.data.mixture import load_mixture
from hearth.data.stream import load_stream

GERMAN = {"frage": "wer?", "antwort": "ich"}
COLUMNS = {"question": "frage", "answer": "antwort"}
OPTIONS = {"sequence_length": 64, "packing": False, "held_out": 0.0, "seed": 1}


@pytest.fixture
def load(tmp_path):
    """Return a function that loads a data set or a mixture, with one cache per test."""
    tokenizer = make_tokenizer()

    def loaded(data, **changes):
        said: list[str] = []
        options = OPTIONS | {"cache": tmp_path / "cache", "say": said.append} | changes
        load = load_mixture if isinstance(data, dict) else load_data
        return load(data, tokenizer, **options), said

    return loaded


@pytest.fixture
def german(tmp_path):
    path = tmp_path / "german.jsonl"
    path.write_text(f"{json.dumps(GERMAN)}\n" * 3)
    return path


def test_renamed_columns_are_read_and_other_names_make_new_tokens(load, german):
    data, _ = load(german, columns=COLUMNS, held_out=0.0)
    assert data.report.examples == 3
    assert len(load(german, columns=COLUMNS)[1]) == 1
    swapped, said = load(german, columns={"question": "antwort", "answer": "frage"})
    assert len(said) == 2
    assert swapped.report.fingerprint != data.report.fingerprint


def test_a_name_that_no_record_has_is_a_finding_with_those_that_there_are(load, german):
    with refuses(DataError, "german.jsonl:1", "'frag'", "did you mean 'frage'", "antwort, frage"):
        load(german, columns=COLUMNS | {"question": "frag"})


def test_an_optional_column_may_be_missing_in_some_records(load, german):
    german.write_text(german.read_text() + json.dumps(GERMAN | {"rolle": "s"}))
    assert load(german, columns=COLUMNS | {"system": "rolle"})[0].report.examples == 4


def test_in_a_mixture_sets_with_none_of_the_names_are_read_as_they_are(load, german, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text("a lamp\n\na cable")
    data, _ = load({german: 1, other: 1}, columns=COLUMNS)
    assert data.report.examples == 5
    with refuses(DataError, "german.jsonl:1", "'frag'"):
        load({german: 1, other: 1}, columns=COLUMNS | {"question": "frag"})
    with refuses(DataError, "other.txt", "'frage'", "text"):
        load(other, columns=COLUMNS)


def test_columns_of_the_hub_are_renamed_also_in_a_stream(load, monkeypatch):
    rows = datasets.Dataset.from_list([GERMAN] * 5 + [{"frage": "wo?"}])
    monkeypatch.setattr("hearth.data.hub_rows._probe", lambda data: True)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows.select(range(5)))
    assert load("owner/name", columns=COLUMNS)[0].report.examples == 5
    monkeypatch.setattr(stream, "WINDOW", 3)
    monkeypatch.setattr(
        stream, "open_stream", lambda data, revision: (rows.to_iterable_dataset(), "c" * 40)
    )
    said: list[str] = []
    options = {"revision": None, "say": said.append} | OPTIONS
    data = load_stream("owner/name", make_tokenizer(), columns=COLUMNS, **options)
    assert [data.train.sources(row) for row in range(5)][4] != []
    assert_names("\n".join(said), "left out", "owner/name:6")
    with refuses(DataError, "owner/name:1", "'frag'"):
        load_stream("owner/name", make_tokenizer(), columns={"question": "frag"}, **options)
