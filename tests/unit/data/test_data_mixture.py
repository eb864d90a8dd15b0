"""Rows of a mixture of data sets."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.facts import assert_names
from support.tiny_model import make_tokenizer

from hearth.base.errors import DataError
from hearth.data.load import load_data
from hearth.data.mixture import load_mixture

OPTIONS = {"sequence_length": 64, "packing": True, "held_out": 0.2, "seed": 1}


@pytest.fixture
def load(tmp_path):
    """Return a function that loads a mixture, or one of its data sets."""
    tokenizer = make_tokenizer()

    def loaded(data, **changes):
        options = OPTIONS | {"cache": tmp_path / "cache", "say": lambda _: None} | changes
        return (load_mixture if isinstance(data, dict) else load_data)(data, tokenizer, **options)

    return loaded


@pytest.fixture
def files(tmp_path):
    """Return two files: questions of unequal length, and texts."""
    chats = tmp_path / "chats.jsonl"
    lines = [{"prompt": f"ask {n}", "completion": "yes " * (n % 9 + 1)} for n in range(60)]
    chats.write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = tmp_path / "texts.txt"
    texts.write_text("\n\n".join(f"paragraph {n} " * (n % 7 + 1) for n in range(40)))
    return chats, texts


@pytest.mark.parametrize("packing", [True, False])
def test_each_row_is_that_of_one_set_and_padded_as_if_alone(load, files, packing):
    mixed = load(dict.fromkeys(files, 1), packing=packing)
    alone = [load(path, packing=packing) for path in files]
    for rows, parts in (
        (mixed.train, [data.train for data in alone]),
        (mixed.held_out, [data.held_out for data in alone]),
    ):
        assert len(rows) == sum(map(len, parts))
        assert rows.tokens.tolist() == [*parts[0].tokens, *parts[1].tokens]
        second = len(parts[0])
        assert rows.sources(second) == parts[1].sources(0)
        batch, own = rows.batch([0, second]), [parts[0].batch([0]), parts[1].batch([0])]
        assert sum(batch.packed_seq_lengths) == batch.input_ids.size
        for line, each in enumerate(own):
            end = each.input_ids.shape[1]
            for name in ("input_ids", "labels", "position_ids"):
                assert np.array_equal(getattr(batch, name)[line, :end], getattr(each, name)[0])
            assert (batch.labels[line, end:] == -100).all()
        # Rows of one set together are what that set gives by itself.
        for own, first in ((parts[0], 0), (parts[1], second)):
            numbers = np.array([2, 0, 1])
            whole, part = rows.batch(numbers + first), own.batch(numbers)
            assert all(
                np.array_equal(value, vars(whole)[name]) for name, value in vars(part).items()
            )
    assert mixed.train.batch([]).labels.max() == -100
    assert mixed.question() == alone[0].question()


def test_the_report_names_shares_and_the_fingerprint_is_that_of_all(load, files, tmp_path):
    chats, texts = files
    mixed = load({chats: 3, texts: 1})
    assert_names(str(mixed.report), "75.0%", chats, "25.0%", texts)
    others = [load({chats: 1, texts: 1}), load({texts: 1, chats: 3}), load({chats: 6, texts: 2})]
    differ = [data.report.fingerprint != mixed.report.fingerprint for data in others]
    assert differ == [True, True, False]
    texts.write_text(texts.read_text() + "\n\nmore")
    assert load({chats: 3, texts: 1}).report.fingerprint != mixed.report.fingerprint


def test_the_problems_of_all_sets_are_named_at_once(load, tmp_path):
    bad = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for path in bad:
        path.write_text("no json\n")
    with pytest.raises(DataError) as caught:
        load(dict.fromkeys(bad, 1))
    assert_names(str(caught.value), *(f"{path}:1" for path in bad))
