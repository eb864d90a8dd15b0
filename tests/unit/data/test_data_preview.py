"""Examples as they are trained, for a person to look at."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_model import make_dataset, make_tokenizer

from hearth.data.load import load_data
from hearth.data.rows import Document
from hearth.data.shown import first_examples, lines_of, record_of, shown


def document(text: str, learned: list[bool] | None = None) -> Document:
    ids = np.array(make_tokenizer()(text).input_ids, dtype=np.int32)
    flags = np.arange(len(ids)) > 0 if learned is None else np.resize(learned, len(ids))
    return Document("x.jsonl:7", ids, flags)


@given(st.text(min_size=1), st.lists(st.booleans(), min_size=1))
def test_every_character_is_shown_once_in_its_stretch(text, learned):
    tokenizer, made = make_tokenizer(), document(text, learned)
    example = shown(tokenizer, made)
    if all(learned):  # else a stretch may end within a character
        assert "".join("".join(each.tokens) for each in example.stretches) == text
    assert example.learned == made.learned.sum()
    flags = [each.learned for each in example.stretches]
    assert all(one != other for one, other in itertools.pairwise(flags))


def test_examples_come_in_the_order_of_the_data_with_their_answers_marked(tmp_path):
    data = load_data(
        make_dataset(tmp_path / "x.jsonl", 30),
        make_tokenizer(),
        sequence_length=256,
        packing=True,
        held_out=0.1,
        seed=1,
        cache=tmp_path / "tokens",
    )
    found = first_examples(make_tokenizer(), data.train, 5)
    lines = [int(each.source.rpartition(":")[2]) for each in found]
    assert len(found) == 5
    assert lines == sorted(lines)
    for example in found:
        read, learned = example.stretches
        assert (read.learned, learned.learned) == (False, True)
        assert read.tokens[0] == "<|im_start|>"
        assert learned.tokens[-1] == "<|im_end|>"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit_and_neither_a_token_nor_colour_commands_the_terminal(width):
    example = shown(
        make_tokenizer(), document("a\x1b[2Jb\n\t" + "word " * 90 + "日本" * 40 + "end")
    )
    plain = lines_of(example, 1, False, width)
    assert all(len(line) <= width for line in plain)
    assert not any("\x1b" in line or "\t" in line for line in plain)
    assert "e·n·d" in plain[-1]  # the end of a long stretch is visible
    coloured = lines_of(example, 1, True, width)
    assert len(coloured) == len(plain)
    assert {line.count("\x1b[") for line in coloured} == {0, 2}


def test_the_record_has_the_texts_with_their_marks():
    record = record_of(shown(make_tokenizer(), document("abc", [False, False, True])))
    assert record == {
        "source": "x.jsonl:7",
        "stretches": [{"learned": False, "text": "ab"}, {"learned": True, "text": "c"}],
    }
