"""Text becomes token shards: every token once, in order, all files at once or none."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from support.facts import assert_names, refuses
from support.tiny_model import make_tokenizer

from hearth.base.errors import DataError
from hearth.data.shards import make
from hearth.data.shards.__main__ import main
from hearth.data.shards.files import open_shard
from hearth.data.shards.make import Order, make_shards

TEXTS = [f"lamp number {n} <|im_end|> shines" for n in range(50)]


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(TEXTS[:20]))
    lines = [json.dumps({"text": text}) for text in [*TEXTS[20:], "  "]]
    (tmp_path / "b.jsonl").write_text("\n".join(lines))
    return str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl")


def shards(tmp_path, corpus, said=None, **changes):
    order = Order(
        corpus, tmp_path / "out", "mine", **{"shard_tokens": 100, "held_out": 0} | changes
    )
    return make_shards(order, make_tokenizer(), (said if said is not None else []).append)


def read(tmp_path, split):
    paths = sorted((tmp_path / "out").glob(f"mine_{split}_*.bin"))
    return np.concatenate([np.empty(0, int), *map(open_shard, paths)]).tolist()


def test_the_shards_hold_each_document_once_after_a_border(tmp_path, corpus):
    sizes = shards(tmp_path, corpus)
    tokenizer = make_tokenizer()
    border, byte_of = tokenizer.bos_token_id, tokenizer.convert_tokens_to_ids
    wanted = []
    for text in TEXTS:
        wanted += [border, *(byte_of("Ġ" if letter == " " else letter) for letter in text)]
    assert read(tmp_path, "train") == wanted
    assert sum(sizes.values()) == len(wanted)
    assert list(sizes) == [f"mine_train_{n:06}.bin" for n in range(len(sizes))]
    assert {*list(sizes.values())[:-1]} == {100}


def test_held_out_documents_are_the_same_in_any_order_and_marks_win(tmp_path, corpus):
    shards(tmp_path, corpus, held_out=0.3)
    tokenizer = make_tokenizer()
    kept = tokenizer.decode(read(tmp_path, "val")).split("<|im_start|>")[1:]
    assert 5 < len(kept) < 25
    records = [{"text": text} for text in reversed(TEXTS)]
    records += [{"text": "of mine", "split": "held_out"}, {"text": "no", "split": "train"}]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, records)))
    (tmp_path / "out").rename(tmp_path / "before")
    shards(tmp_path, (str(tmp_path / "c.jsonl"),), held_out=0.3)
    now = tokenizer.decode(read(tmp_path, "val")).split("<|im_start|>")[1:]
    assert now == [*reversed(kept), "of mine"]


def test_a_large_vocabulary_takes_four_bytes_a_token(tmp_path, corpus, monkeypatch):
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.__len__", lambda _: 70_000)
    shards(tmp_path, corpus, shard_tokens=1_000_000)
    assert open_shard(tmp_path / "out" / "mine_train_000000.bin").dtype == "<u4"


def test_a_second_call_keeps_what_is_there_and_other_things_are_never_replaced(tmp_path, corpus):
    first, said = shards(tmp_path, corpus), []
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    assert shards(tmp_path, corpus, said) == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times
    assert_names(said[-1], tmp_path / "out")
    with refuses(DataError, tmp_path / "out", "--out"):
        shards(tmp_path, corpus, held_out=0.5)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times


def test_nothing_appears_if_the_corpus_has_problems_or_the_work_breaks_off(
    tmp_path, corpus, monkeypatch
):
    (tmp_path / "bad.jsonl").write_text('{"text": 3}\n{"prompt": "a", "completion": "b"}\n{\n')
    bad = str(tmp_path / "bad.jsonl")
    with pytest.raises(DataError) as caught:
        shards(tmp_path, (*corpus, bad))
    for line, finding in zip((1, 2, 3), sorted(caught.value.findings), strict=True):
        assert_names(finding, f"{bad}:{line}")
    with refuses(DataError, "a.txt", "held out"):
        shards(tmp_path, (str(tmp_path / "a.txt"),), held_out=0.999999)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(make._Writer, "flush", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        shards(tmp_path, corpus)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.txt", "b.jsonl", "bad.jsonl"}
    assert shards(tmp_path, corpus)


@pytest.mark.parametrize("name", ["x.bin", "x.npy"])
def test_shards_are_not_tokenised_again(tmp_path, name):
    np.save(tmp_path / "x.npy", np.arange(9))
    (tmp_path / "x.npy").rename(tmp_path / name)
    with refuses(DataError, tmp_path / name):
        shards(tmp_path, (str(tmp_path / name),))


@pytest.mark.parametrize(
    ("tokens", "typed_wrong"), [("7", True), ("8", False), ("2147483648", True)]
)
def test_a_shard_has_as_many_tokens_as_its_readers_count(
    tmp_path, monkeypatch, tokens, typed_wrong
):
    out = str(tmp_path / "out")
    words = [str(tmp_path / "none.txt"), "--tokenizer", str(tmp_path / "none"), "--out", out]
    monkeypatch.setattr(sys, "argv", ["shards", *words, "--shard-tokens", tokens])
    with pytest.raises(SystemExit) if typed_wrong else nullcontext():
        assert main() == 2  # there is no such tokenizer
