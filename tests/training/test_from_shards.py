"""A GPT from random weights and token shards learns the same under any split, and resumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.ranks import (
    figures,
    furthest,
    learned,
    metrics,
    stopped,
    succeeded,
    train_forked,
    trained,
)
from support.tiny_model import make_model, make_tokenizer
from transformers import GPT2Config

LICENCE = Path(__file__).parents[2] / "LICENSE"
UNEQUAL = ("--split", "4:2:1", "--micro-batch", 2)


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    """Return the arguments of a run on shards of a real text, with a byte a token."""
    folder = tmp_path_factory.mktemp("shards")
    tokens = np.array(make_tokenizer().encode(LICENCE.read_text()), np.uint16)
    for name, part in zip(("train_0", "train_1", "val_0"), np.array_split(tokens, 3), strict=True):
        header = np.zeros(256, np.int32)
        header[:3] = 20240520, 1, len(part)
        (folder / f"text_{name}.bin").write_bytes(header.tobytes() + part.tobytes())
    model = make_model(folder / "gpt", family=GPT2Config, n_positions=64)
    (model / "model.safetensors").unlink()
    return [
        *("--model", model, "--scratch", "--lora", "off", "--dropout", 0),
        *("--dataset", folder / "*_train_*.bin", "--validation", folder / "*_val_*.bin"),
        *("--sequence-length", 64, "--global-batch", 7, "--max-steps", 12),
        *("--learning-rate", 0.005, "--weight-decay", 0.1, "--beta2", 0.95, "--clip-norm", 1),
        *("--split", "equal", "--micro-batch", 7, "--precision", "fp64", "--wandb", "off"),
    ]


@pytest.fixture(scope="module")
def one(tmp_path_factory, arguments):
    """Return a folder with the run `one` of one rank."""
    cwd = tmp_path_factory.mktemp("one")
    trained(cwd, "one", 1, *arguments)
    return cwd


def test_unequal_ranks_learn_what_one_process_learns_and_a_resumed_run_the_same(
    one, tmp_path, arguments
):
    found = trained(tmp_path, "three", 3, *arguments, *UNEQUAL)
    assert furthest(found, learned(one, "one")) < 1e-9
    stopped(tmp_path, "again", 3, *arguments, *UNEQUAL)
    succeeded(train_forked(tmp_path, 3, "--resume", "again"))
    assert furthest(learned(tmp_path, "again"), found) == 0
    alone, three, again = (
        figures(cwd / "runs" / run, "step", "loss")
        for cwd, run in ((one, "one"), (tmp_path, "three"), (tmp_path, "again"))
    )
    assert three == pytest.approx(alone, abs=1e-9)
    assert again == three
    assert alone[-1] < alone[0] - 1


def test_before_and_after_the_model_goes_on_with_the_beginning_of_the_validation_shard(one):
    folder = one / "runs" / "one"
    before, after = metrics(folder, "sample")
    assert [before["when"], after["when"]] == ["before", "after"]
    assert before["question"] + before["expected"] in LICENCE.read_text()
    assert before["question"] == after["question"]
    assert before["answer"] != after["answer"]
    perplexity = figures(folder, "evaluate", "perplexity")
    assert perplexity[1] < perplexity[0]
