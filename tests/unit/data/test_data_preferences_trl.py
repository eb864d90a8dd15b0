"""Preferences as TRL reads them: prompts, pairs taken apart and the tokens that are learned."""

from __future__ import annotations

import json
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
from support.tiny_model import make_tokenizer
from trl import DPOTrainer, extract_prompt
from trl.data_utils import unpair_preference_dataset

from datasets import Dataset
from hearth.data.load import load_data
from hearth.data.preferences import to_preferences
from hearth.data.rows import IGNORED

WORDS = ["rank", "node", "ß", "日本", "<|im", "end", "assistant", "\n\n", "<think>", "0", "?"]


def chats(count: int) -> list[dict]:
    """Return pairs of conversations with a common head of one to three questions."""
    chance, made = Random(5), []

    def turn(role: str) -> dict[str, str]:
        text = " ".join(chance.choices(WORDS, k=chance.randint(1, 6)))
        return {"role": role, "content": f"a{text}z"}

    for _ in range(count):
        head = [turn(role) for role in ["user", "assistant"] * chance.randint(0, 2) + ["user"]]
        one, other = turn("assistant"), turn("assistant")
        other["content"] += "!"
        made.append({"chosen": [*head, one], "rejected": [*head, other]})
    return made


def written(example, learned: bool) -> list[dict[str, str]]:
    """Return the messages of an example that are learned, or the others."""
    return [
        {"role": each.role, "content": each.content}
        for each in example.messages
        if each.is_learned == learned
    ]


def test_prompts_are_those_that_trl_extracts():
    for record in chats(200):
        theirs = extract_prompt(record)
        for name, mine in zip(("chosen", "rejected"), to_preferences(record, "dpo"), strict=True):
            assert written(mine, False) == theirs["prompt"]
            assert written(mine, True) == theirs[name]


def test_pairs_are_taken_apart_as_trl_does():
    records = chats(20)
    theirs = unpair_preference_dataset(
        Dataset.from_list([extract_prompt(each) for each in records])
    )
    mine = [example for each in records for example in to_preferences(each, "kto")]

    def rows(prompts, answers, labels):
        return sorted(json.dumps(row) for row in zip(prompts, answers, labels, strict=True))

    assert rows(
        [written(each, False) for each in mine],
        [written(each, True) for each in mine],
        [each.liked for each in mine],
    ) == rows(theirs["prompt"], theirs["completion"], theirs["label"])


@pytest.mark.parametrize("explicit", [False, True])
def test_the_learned_tokens_are_those_of_trl(tmp_path, explicit):
    tokenizer, records = make_tokenizer(), chats(60)
    if explicit:
        records = [extract_prompt(each) for each in records]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, records)))
    rows = load_data(
        path,
        tokenizer,
        sequence_length=4096,
        packing=False,
        held_out=0.0,
        seed=1,
        cache=tmp_path / "cache",
        say=lambda _: None,
        objective="dpo",
    ).train
    args = SimpleNamespace(dataset_num_proc=None, max_length=None)
    theirs = DPOTrainer._prepare_dataset(None, Dataset.from_list(records), tokenizer, args, "train")
    assert len(theirs) == len(rows) == 60
    for row, record in enumerate(theirs):
        batch, at = rows.batch([row]), 0
        for name, length in zip(("chosen", "rejected"), batch.packed_seq_lengths, strict=True):
            ids = record["prompt_ids"] + record[f"{name}_ids"]
            assert tokenizer.decode(ids[length:]) == "\n"  # behind the end, and never learned here
            own = slice(at, at + length)
            assert batch.input_ids[0, own].tolist() == ids[:length]
            learned = np.arange(length) >= len(record["prompt_ids"])
            assert (batch.labels[0, own] != IGNORED).tolist() == learned.tolist()
            at += length
