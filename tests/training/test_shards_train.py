"""Training on token shards: the same rows under any split, resumed at the row."""

from __future__ import annotations

import numpy as np
import pytest
from support.ranks import (
    figures,
    furthest,
    learned,
    metrics,
    refused,
    stopped,
    succeeded,
    train_forked,
    trained,
)
from support.shards import write_shard

EIGHT = ("--max-steps", 8)


@pytest.fixture
def scratch(tmp_path, tiny_model):
    """Arguments of runs from scratch on shards that lie in `tmp_path`."""
    words = np.random.default_rng(1).integers(1, 250, (9, 12))
    for name, count in (("train_1", 40), ("train_2", 90), ("val_1", 30)):
        chosen = np.random.default_rng(count).integers(0, 9, count)
        write_shard(tmp_path / f"fine_{name}.bin", words[chosen].ravel().tolist())
    return [
        *("--model", tiny_model, "--lora", "off", "--scratch", "--precision", "fp64"),
        *("--dataset", "fine_train_*.bin", "--validation", "fine_val_*.bin"),
        *("--sequence-length", 32, "--global-batch", 7, "--micro-batch", 2),
        *("--learning-rate", 0.01, "--warmup-steps", 2, "--wandb", "off", *EIGHT),
    ]


@pytest.mark.rotated
def test_ranks_of_unequal_speed_learn_what_one_learns_and_go_on_at_the_row(tmp_path, scratch):
    expected = trained(tmp_path, "alone", 1, *scratch)
    whole = tmp_path / "runs" / "alone"
    before, after = metrics(whole, "evaluate")
    assert after["loss"] < before["loss"]
    assert before["tokens"] == (30 * 12 - 1) // 31 * 31
    stopped(tmp_path, "split", 3, *scratch, "--split", "4:2:1")
    succeeded(train_forked(tmp_path, 3, "--resume", "split"))
    assert furthest(learned(tmp_path, "split"), expected) < 1e-9
    losses = figures(whole, "step", "loss")
    assert figures(tmp_path / "runs" / "split", "step", "loss") == pytest.approx(losses)


def test_shards_of_another_vocabulary_are_named_before_training(tmp_path, scratch):
    write_shard(tmp_path / "fine_train_3.bin", [50_256] * 100)
    write_shard(tmp_path / "fine_val_2.bin", [65_535] * 100)
    done = train_forked(tmp_path, 1, *scratch)
    said = refused(done, "fine_train_3.bin", "token 50256", "fine_val_2.bin", "token 65535")
    assert "fine_train_1.bin" not in said
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))


@pytest.mark.rotated
def test_shards_that_are_missing_or_others_on_a_node_are_named(tmp_path, scratch):
    folder = stopped(tmp_path, "night", 1, *scratch)
    write_shard(tmp_path / "fine_train_1.bin", [7] * 480)
    (tmp_path / "fine_val_1.bin").unlink()
    done = train_forked(tmp_path, 1, "--run-file", folder / "run.yml")
    said = refused(done, tmp_path / "fine_train_1.bin", tmp_path / "fine_val_1.bin")
    assert "fine_train_2.bin" not in said
