"""Preferences: which answers are learned of a record, and pairs whole in their rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tiny_model import make_tokenizer

from hearth.data.load import TokenData, load_data
from hearth.data.mixture import load_mixture
from hearth.data.packing import partners
from hearth.data.rows import IGNORED

TOKENIZER = make_tokenizer()


@pytest.fixture
def load(tmp_path):
    """Return a function that loads records, those of a file, under an objective."""

    def load_records(records: list[dict], objective: str, **changes: object) -> TokenData:
        path = tmp_path / "x.jsonl"
        path.write_text("\n".join(map(json.dumps, records)))
        settings = {"sequence_length": 512, "packing": True, "held_out": 0.0, "seed": 1}
        options = settings | {"cache": tmp_path / "cache", "say": lambda _: None} | changes
        return load_data(path, TOKENIZER, objective=objective, **options)

    return load_records


def pair(number: int, size: int = 1) -> dict[str, str]:
    return {
        "prompt": f"Question {number}?",
        "chosen": f"Good {number}" + "!" * size,
        "rejected": f"Bad {number}.",
    }


def texts(batch) -> list[str]:
    """Return the documents of a batch of one row as texts, learned parts in brackets."""
    found, at = [], 0
    for length in batch.packed_seq_lengths:
        ids = batch.input_ids[0, at : at + length]
        learned = batch.labels[0, at : at + length] != IGNORED
        assert (np.flatnonzero(learned) == np.arange(learned.argmax(), length)).all()
        found.append((TOKENIZER.decode(ids[~learned]), TOKENIZER.decode(ids[learned])))
        at += length
    return found


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=4, max_size=30),
    st.integers(0, 9),
)
def test_each_answer_gets_one_of_another_record_and_each_is_used_once(drawn, seed):
    lengths = np.array([length for length, _ in drawn])
    records = np.arange(len(drawn)) // 2 if len(drawn) > 5 else np.arange(len(drawn))
    found = partners(lengths, records, seed)
    assert sorted(found) == [*range(len(drawn))]
    assert (records[found] != records).all()


@pytest.mark.parametrize("packing", [True, False])
def test_a_pair_is_two_documents_of_one_row_with_one_question(load, packing):
    data = load([pair(number) for number in range(9)], "dpo", packing=packing)
    rows, pieces = data.train, []
    assert rows.answers.sum() == 18 and (len(rows) == 9 or packing)
    for row in range(len(rows)):
        batch = rows.batch([row])
        documents = texts(batch)
        assert len(documents) == rows.answers[row]
        pieces += (own := rows.pieces_of([row]).tolist())
        assert rows.liked[own].tolist() == [True, False] * (len(own) // 2)
        good = 0
        for (asked, chosen), (again, rejected) in zip(documents[::2], documents[1::2], strict=True):
            assert asked == again
            number = chosen.split()[1].partition("!")[0]
            assert f"Question {number}?" in asked
            assert (chosen, rejected) == (f"Good {number}!<|im_end|>", f"Bad {number}.<|im_end|>")
            good += len(TOKENIZER(chosen).input_ids)
        assert rows.liked_tokens[row] == good
    assert sorted(pieces) == [*range(18)]
    assert data.report.examples == 9


def test_judged_answers_are_rows_of_answers_with_another_answer_each(load):
    records = [
        {"prompt": f"Question {n}?", "completion": f"Answer {n} {'x' * n}", "label": n % 3 == 0}
        for n in range(12)
    ]
    rows = load(records, "kto").train
    assert rows.liked.sum() == 4
    for row in range(len(rows)):
        other = rows.mismatched([row])
        assert other.input_ids.size <= rows.tokens[row]
        for (asked, own), (again, answer) in zip(
            texts(rows.batch([row])), texts(other), strict=True
        ):
            assert asked == again
            assert own != answer and answer.startswith("Answer"[: len(answer)])


@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_a_mixture_has_the_rows_of_its_sets_with_pieces_numbered_on(tmp_path, objective):
    paths = []
    for name, count in (("one", 7), ("two", 5)):
        paths.append(tmp_path / f"{name}.jsonl")
        paths[-1].write_text("\n".join(json.dumps(pair(n)) for n in range(count)))
    options = {"sequence_length": 256, "packing": True, "held_out": 0.0, "seed": 1}
    options |= {"cache": tmp_path / "cache", "say": lambda _: None, "objective": objective}
    mixed = load_mixture(dict.fromkeys(paths, 1), TOKENIZER, **options).train
    one, two = (load_data(path, TOKENIZER, **options).train for path in paths)
    assert mixed.liked.tolist() == [*one.liked, *two.liked]
    assert mixed.answers.tolist() == [*one.answers, *two.answers]
    assert mixed.liked_tokens.tolist() == [*one.liked_tokens, *two.liked_tokens]
    pieces = [*one.pieces_of(range(len(one))), *(14 + two.pieces_of(range(len(two))))]
    assert mixed.pieces_of(range(len(mixed))).tolist() == pieces
    other = mixed.mismatched([len(one)])
    assert (other.input_ids == two.mismatched([0]).input_ids).all()
    found = mixed.documents(3)
    names = [each.source.rpartition("/")[2].partition(".")[0] for each in found]
    if objective == "dpo":
        assert names == ["one", "one", "two", "two", "one", "one"]
        assert [each.side for each in found] == ["chosen", "rejected"] * 3
    else:
        assert names == ["one", "two", "one"]
