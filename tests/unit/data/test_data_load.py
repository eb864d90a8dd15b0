"""`load_data` end to end: files in, rows out, tokens kept, the report true."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from support.facts import assert_names, refuses
from support.tiny_model import make_tokenizer

import datasets
from hearth.base.errors import DataError
from hearth.data.encode import encode_prompt
from hearth.data.load import TokenData, load_data
from hearth.data.rows import IGNORED, Rows

SETTINGS = {"sequence_length": 128, "packing": True, "held_out": 0.1, "seed": 1}


def chat(number: int, **more: str) -> dict[str, str]:
    return {"prompt": f"How much is {number}?", "completion": f"{number} much.", **more}


def write(path: Path, records: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def sources(rows: Rows) -> list[str]:
    return [source for row in range(len(rows)) for source in rows.sources(row)]


@pytest.fixture
def tokenizer():
    return make_tokenizer()


@pytest.fixture
def load(tmp_path, tokenizer):
    """Return a function that gives `load_data`'s result and messages, with one cache per test."""

    def load_file(path: Path | str, **changes: object) -> tuple[TokenData, list[str]]:
        said: list[str] = []
        settings = SETTINGS | {"cache": tmp_path / "cache", "say": said.append} | changes
        return load_data(path, tokenizer, **settings), said

    return load_file


def test_the_report_counts_what_became_of_the_examples(load, tmp_path):
    records = [chat(number) for number in range(50)]
    records += [{"text": "long text " * 40}, chat(7, completion="x" * 300), chat(8, completion="")]
    data, said = load(write(tmp_path / "x.jsonl", records), held_out=0)
    report = data.report
    assert (report.examples, report.held_out_examples) == (51, 0)
    assert len(report.notes) == 3
    assert (report.rows, report.held_out_rows) == (len(data.train), 0)
    assert report.tokens == data.train.tokens.sum()
    assert report.label_tokens == data.train.label_tokens.sum()
    assert report.padding == pytest.approx(1 - report.tokens / (report.rows * 128))
    assert said[-1] == str(report)
    assert_names(said[-1], "blank: 1 (line 53)", "pieces: 1 (line 51)", "cut: 1 (line 52)", 128)


def test_the_data_line_names_columns_that_are_not_read_and_copies_of_held_out_examples(
    load, tmp_path
):
    records = [chat(number) | {"id": number} for number in range(8)]
    marked = [each | {"split": "held_out"} for each in (chat(3), chat(9))]
    _, said = load(write(tmp_path / "x.jsonl", records + marked))
    assert_names(said[-1], "not used: id", "held out, too", "1 (line 4)")
    assert load(tmp_path / "x.jsonl")[1][-1] == said[-1]  # also from the cache


def test_the_same_arguments_give_the_same_rows(load, tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(number) for number in range(50)])
    first, second, other = load(path)[0], load(path)[0], load(path, seed=2)[0]
    assert first.report.fingerprint == second.report.fingerprint != other.report.fingerprint


def test_held_out_examples_are_the_same_in_any_order_and_for_any_seed(load, tmp_path):
    records = [chat(number) for number in range(80)]
    kept = set()
    for seed in range(3):
        random.Random(seed).shuffle(records)
        data, _ = load(write(tmp_path / f"{seed}.jsonl", records), seed=seed)
        train, held_out = set(sources(data.train)), set(sources(data.held_out))
        assert not train & held_out
        assert len(train | held_out) == 80
        lines = [int(source.rpartition(":")[2]) for source in held_out]
        kept.add(frozenset(records[line - 1]["prompt"] for line in lines))
    assert len(kept) == 1


def test_marks_in_the_file_win(load, tmp_path):
    records = [chat(0), chat(1, split="held_out"), chat(2, split="train"), chat(3)]
    data, _ = load(write(tmp_path / "x.jsonl", records), held_out=0.9)
    assert data.held_out.sources(0) == [f"{tmp_path}/x.jsonl:2"]
    assert data.report.examples == 3


def test_a_held_out_question_can_be_asked_as_it_was_trained(load, tmp_path, tokenizer):
    records = [{"text": "no question", "split": "held_out"}, chat(1), chat(2, split="held_out")]
    data, _ = load(write(tmp_path / "x.jsonl", records))
    question = data.question()
    assert question.text == "How much is 2?"
    assert question.expected == "2 much."
    prompt = encode_prompt(tokenizer, question.messages)
    batch = data.held_out.batch([0])
    assert f" {' '.join(map(str, prompt))} " in f" {' '.join(map(str, batch.input_ids[0]))} "


def test_a_greeting_is_no_answer_to_a_question(load, tmp_path):
    hello = {"role": "assistant", "content": "hello"}
    turns = [{"role": "user", "content": "ping"}, {"role": "assistant", "content": "pong"}]
    records = [{"messages": [hello], "split": "held_out"}]
    told = {"role": "system", "content": "be kind"}
    records += [{"messages": [told, hello, *turns], "split": "held_out"}, chat(1)]
    data, _ = load(write(tmp_path / "x.jsonl", records))
    question = data.question()
    assert (question.text, question.expected) == ("ping", "pong")


def test_the_same_bytes_under_another_ending_are_read_anew(load, tmp_path):
    table = "prompt,completion\n" + "".join(f"How much is {n}?,{n} much.\n" for n in range(20))
    (tmp_path / "x.txt").write_text(table)
    (tmp_path / "x.csv").write_text(table)
    as_text, as_table = load(tmp_path / "x.txt", held_out=0), load(tmp_path / "x.csv", held_out=0)
    assert (as_text[0].report.examples, as_table[0].report.examples) == (1, 20)


def test_texts_only_have_no_question(load, tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("\n\n".join(f"paragraph {number}" for number in range(30)))
    data, _ = load(path)
    assert data.report.held_out_examples > 0
    assert data.question() is None


def test_without_packing_a_row_is_an_example_in_the_order_of_the_file(load, tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(number) for number in range(20)])
    data, _ = load(path, packing=False, held_out=0)
    assert sources(data.train) == [f"{path}:{line}" for line in range(1, 21)]
    assert len(data.train) == 20


def test_all_that_is_learned_is_answers_and_their_ends(load, tmp_path, tokenizer):
    data, _ = load(write(tmp_path / "x.jsonl", [chat(5)] * 3 + [chat(6)]), held_out=0)
    labels = data.train.batch(range(len(data.train))).labels
    told = tokenizer.decode(labels[labels != IGNORED])
    assert sorted(told.split("<|im_end|>")) == ["", "5 much.", "5 much.", "5 much.", "6 much."]


def test_the_shipped_data_set_loads_by_name(load):
    data, _ = load("homelab-qa", sequence_length=4096)
    assert data.report.examples > data.report.held_out_examples > 0
    assert not data.report.notes
    assert data.question().text


def test_tokens_are_made_once(load, tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(number) for number in range(20)])
    first, said = load(path)
    assert_names(said[0], "tokens", path)
    moved = path.rename(tmp_path / "moved.jsonl")
    second, said = load(moved, sequence_length=100, seed=9)
    assert len(said) == 1, "neither name, row length nor seed make new tokens necessary"
    assert second.train.sources(0)[0].startswith(f"{moved}:")
    assert isinstance(second.train._documents.ids, np.memmap)
    assert first.report.sha256 == second.report.sha256


def test_other_content_or_another_template_are_other_tokens(load, tmp_path, tokenizer):
    path = write(tmp_path / "x.jsonl", [chat(number) for number in range(20)])
    load(path)
    assert len(load(write(path, [chat(number) for number in range(21)]))[1]) == 2
    tokenizer.chat_template = tokenizer.chat_template.replace("\n", " ")
    assert len(load(path)[1]) == 2


@pytest.mark.parametrize("name", ["ids.npy", "entry.json"])
@pytest.mark.parametrize("how", ["torn", "changed", "gone"])
def test_a_damaged_cache_is_noticed_and_made_anew(load, tmp_path, name, how):
    path = write(tmp_path / "x.jsonl", [chat(number) for number in range(20)])
    before = load(path)[0].report.fingerprint
    (victim,) = tmp_path.glob(f"cache/*/{name}")
    content = victim.read_bytes()
    victim.unlink()
    if how == "torn":
        victim.write_bytes(content[: len(content) // 2])
    if how == "changed":
        victim.write_bytes(content[:-20] + bytes(20))
    data, said = load(path)
    assert "damaged" in said[0]
    assert data.report.fingerprint == before
    assert len(load(path)[1]) == 1


def test_what_a_killed_process_left_is_cleared_away(load, tmp_path):
    path = write(tmp_path / "x.jsonl", [chat(number) for number in range(20)])
    load(path)
    (entry,) = [folder for folder in (tmp_path / "cache").iterdir() if folder.is_dir()]
    entry.rename(entry.with_name(f".{entry.name}.unfinished"))
    load(path)
    assert not list(tmp_path.glob("cache/.*.unfinished"))


@pytest.fixture
def hub_answers(monkeypatch):
    monkeypatch.setattr("hearth.data.hub_rows._probe", lambda data: True)


def test_a_hub_data_set_counts_rows(load, monkeypatch, hub_answers):
    rows = datasets.Dataset.from_list([chat(number) for number in range(20)])
    asked = []
    monkeypatch.setattr(datasets, "load_dataset", lambda *a, **k: asked.append((a, k)) or rows)
    data, _ = load("owner/name:config", held_out=0, packing=False)
    assert asked == [(("owner/name", "config"), {"split": "train"})]
    assert data.train.sources(0) == ["owner/name:config:1"]
    assert data.report.examples == 20


def test_a_hub_data_set_without_the_wanted_config_says_so(load, monkeypatch, hub_answers):
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("Config name is missing.\nPlease pick one among ['a', 'b']")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with refuses(DataError, "owner/name", "Config name", "name:config"):
        load("owner/name")


def test_an_unreachable_hub_is_told(load, monkeypatch, tmp_path):
    """Stand-in for the Hub: a closed loopback port."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "none")
    with refuses(DataError, "owner/name", "Hub", "data file"):
        load("owner/name")
