"""Complete runs with Unsloth: several ranks, beside a rank on a CPU, resumed, to the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.preferences import write_judged, write_pairs
from support.ranks import (
    Origin,
    figures,
    furthest,
    learned,
    metrics,
    stopped,
    succeeded,
    train,
    train_forked,
    trained,
)
from support.supervisors import free_port
from support.tiny_model import make_model
from support.unsloth_ranks import LENGTH, PYTHON, UNSLOTH, variables
from transformers import Phi3Config

pytestmark = pytest.mark.long

RUNS = ("first", "second")


@pytest.fixture
def arguments(llama, texts):
    return [
        *("--model", llama, "--dataset", texts, "--sequence-length", LENGTH, "--precision", "fp32"),
        *("--global-batch", 4, "--split", "equal", "--micro-batch", 1, "--max-steps", 2),
        *("--learning-rate", 0.01, "--warmup-steps", 0, "--lora-rank", 4, "--optimizer", "adamw"),
        *("--wandb", "off", "--eval-held-out", "off", "--held-out", 0.2),
    ]


def losses(cwd, run):
    return figures(cwd / "runs" / run, "step", "loss")


@pytest.mark.rotated
def test_ranks_with_cards_of_their_own_or_a_shared_one_learn_what_transformers_learns(
    tmp_path, arguments
):
    plain = trained(tmp_path, "plain", 1, *arguments)
    expected = losses(tmp_path, "plain")
    for ranks, split, gradients in ((2, "2:1", "nccl"), (3, "1:1:2", "gloo")):
        more = ("--backend", "unsloth", "--split", split)
        fast = trained(tmp_path, f"r{ranks}", ranks, *arguments, *more, origin=UNSLOTH)
        assert furthest(fast, plain) < 1e-3
        start = metrics(tmp_path / "runs" / f"r{ranks}", "start")[0]
        assert start["gradients"] == gradients
        devices = ["cuda:0", "cuda:1", "cuda:0"][:ranks]
        assert [rank["device"] for rank in start["ranks"]] == devices
        assert losses(tmp_path, f"r{ranks}") == pytest.approx(expected, rel=1e-5)


@pytest.mark.rotated
@pytest.mark.parametrize("family", [None, Phi3Config])
def test_unsloth_and_a_rank_on_a_cpu_learn_together(tmp_path, arguments, family):
    if family:
        arguments[1] = make_model(tmp_path / "model", family=family)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}

    def rank(number, origin):
        cwd = tmp_path / f"node{number}"
        cwd.mkdir()
        own = {"RANK": str(number), "HEARTH_NODE": cwd.name} | meeting
        more = ("--run-name", "both", "--split", "1:1")
        return train_forked(cwd, 1, *arguments, *more, origin=origin, **own)

    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(rank, (0, 1), (UNSLOTH, Origin())):
            succeeded(done)
    trained(tmp_path, "plain", 1, *arguments)
    start = metrics(tmp_path / "node0/runs/both", "start")[0]
    assert [rank["device"] for rank in start["ranks"]] == ["cuda:0", "cpu"]
    assert losses(tmp_path / "node0", "both") == pytest.approx(losses(tmp_path, "plain"), rel=1e-5)


@pytest.mark.rotated
def test_a_stopped_run_goes_on_bit_for_bit_with_its_loss_scale(tmp_path, arguments):
    fast = [*arguments, "--backend", "unsloth", "--gradient-checkpointing", "--precision", "fp16"]
    expected = trained(tmp_path, "whole", 1, *fast, origin=UNSLOTH)
    stopped(tmp_path, "night", 1, *fast, origin=UNSLOTH)
    succeeded(train_forked(tmp_path, 1, "--resume", "night", origin=UNSLOTH))
    assert furthest(learned(tmp_path, "night"), expected) == 0


@pytest.mark.rotated
def test_a_run_on_top_of_another_begins_where_that_ended(tmp_path, arguments, tiny_data):
    data = ("--dataset", tiny_data, "--sequence-length", 64, "--held-out", 0.1)
    judged = (*arguments, *data, "--eval-held-out", "on")
    trained(tmp_path, "first", 1, *judged, "--backend", "unsloth", origin=UNSLOTH)
    more = ("--backend", "unsloth", "--onto", "first", "--max-steps", 1)
    trained(tmp_path, "second", 1, *judged, *more, origin=UNSLOTH)
    first, second = (figures(tmp_path / "runs" / run, "evaluate", "loss") for run in RUNS)
    assert second[0] == pytest.approx(first[-1], abs=1e-6)
    assert second[-1] != second[0]


@pytest.mark.rotated
@pytest.mark.parametrize("objective", ["dpo", "orpo", "kto"])
def test_preferences_are_learned_as_by_transformers(tmp_path, arguments, objective):
    write = write_judged if objective == "kto" else write_pairs
    data = write(tmp_path / "data.jsonl", 8)
    more = [*arguments, "--dataset", data, "--sequence-length", 128, "--objective", objective]
    plain = trained(tmp_path, "plain", 1, *more)
    fast = trained(tmp_path, "fast", 2, *more, "--backend", "unsloth", origin=UNSLOTH)
    assert furthest(fast, plain) < 1e-3
    assert losses(tmp_path, "fast") == pytest.approx(losses(tmp_path, "plain"), rel=1e-4)


@pytest.mark.rotated
def test_dropout_is_drawn_by_micro_batch_and_not_in_an_evaluation(tmp_path, arguments):
    fast = [*arguments, "--backend", "unsloth", "--lora-dropout", 0.3, "--max-steps", 2]
    one = trained(tmp_path, "one", 1, *fast, origin=UNSLOTH)
    two = trained(tmp_path, "two", 2, *fast, origin=UNSLOTH)
    none = trained(tmp_path, "without", 1, *fast, "--lora-dropout", 0, origin=UNSLOTH)
    assert furthest(two, one) < 1e-5
    assert furthest(none, one) > 1e-3


@pytest.mark.rotated
def test_by_hand_a_run_is_measured_trained_and_judged_to_its_end(tmp_path, arguments, tiny_data):
    """In processes of their own, which find the stand-in by the PYTHONPATH of a person."""
    done = train(
        *(tmp_path, 1, *arguments, "--backend", "unsloth", "--run-name", "night"),
        *("--split", "auto", "--micro-batch", "auto", "--eval-held-out", "--max-steps", 2),
        *("--dataset", tiny_data, "--sequence-length", 64, "--held-out", 0.05),
        python=PYTHON,
        **variables("8.9"),
    )
    succeeded(done)
    folder = tmp_path / "runs/night"
    assert metrics(folder, "end")[0]["state"] == "finished"
    before, *_, after = metrics(folder, "evaluate")
    assert after["loss"] < before["loss"]
    assert metrics(folder, "sample")
    assert (folder / "adapter/adapter_model.safetensors").is_file()
    assert list((tmp_path / "cache/hearth/data/speeds").glob("*.json"))
    assert not (tmp_path / "unsloth_compiled_cache").exists()
