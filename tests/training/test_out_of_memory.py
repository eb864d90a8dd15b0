"""A rank that really runs out of memory while it trains: an allocation beyond its limit fails."""

from __future__ import annotations

import json

import pytest
from support.facts import assert_names
from support.llama import make_llama
from support.ranks import (
    figures,
    furthest,
    learned,
    metrics,
    refused,
    succeeded,
    train_forked,
    trained,
)

from hearth.plan.row_order import RowOrder

EXAMPLES, GLOBAL_BATCH, SEED, LENGTH = 64, 16, 1, 1500
STEP = 3
"""The step, from 1, whose long row makes the second six of rank 0's twelve rows too large.

By then the first six have left their gradients.
"""

LIMIT = 0.95  # GiB; six such rows were seen to fit once in 1.05, and three of them in 0.85


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return where all runs of this file lie."""
    return tmp_path_factory.mktemp("memory")


@pytest.fixture(scope="module")
def arguments(folder):
    """Return the arguments of all runs: all rows are short but one, which rank 0 computes."""
    long = RowOrder(EXAMPLES, GLOBAL_BATCH, SEED).batch(STEP - 1)[0]
    data = folder / "texts.jsonl"
    with data.open("w", encoding="ascii") as file:
        for number in range(EXAMPLES):
            text = f"line {number} of a text " * (LENGTH // 15 if number == long else 2)
            file.write(json.dumps({"text": text[: LENGTH - 2]}) + "\n")
    return [
        *("--model", make_llama(folder / "llama", hidden=128, layers=2), "--dataset", data),
        *("--sequence-length", LENGTH, "--packing", "off", "--held-out", 0, "--seed", SEED),
        *("--learning-rate", 0.01, "--lora-rank", 4, "--precision", "fp64", "--split", "3:1"),
        *("--global-batch", GLOBAL_BATCH, "--max-steps", STEP + 1),
        # Otherwise it would be refused beforehand, as it should be.
        *("--fit", "warn", "--wandb", "off", "--eval-held-out", "off"),
    ]


@pytest.fixture(scope="module")
def careful(folder, arguments):
    """Return the result of ranks that use half the micro-batch from the beginning."""
    return trained(folder, "careful", 2, *arguments, "--micro-batch", 3)


@pytest.fixture(scope="module")
def bold(folder, arguments):
    """Return the result of ranks that run out of memory with that micro-batch."""
    return trained(folder, "bold", 2, *arguments, "--micro-batch", 6, "--memory-limit", LIMIT)


def test_it_goes_on_with_half_as_many_rows_at_once_to_the_same_end(folder, bold, careful):
    assert furthest(bold, careful) < 1e-9
    plans = metrics(folder / "runs" / "bold", "plan")
    assert [(plan["step"], plan["micro_batch"]) for plan in plans] == [
        (1, [6, 6]),
        (STEP, [3, 6]),  # as it was computed at last
    ]
    losses = [figures(folder / "runs" / run, "step", "loss") for run in ("bold", "careful")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.rotated
def test_a_replay_takes_as_many_rows_at_once(folder, arguments, bold):
    assert furthest(trained(folder, "again", 2, *arguments, "--replay", "bold"), bold) == 0


@pytest.mark.rotated
def test_held_out_rows_too_are_taken_fewer_at_once(folder, arguments):
    data = folder / "long.jsonl"
    with data.open("w", encoding="ascii") as file:
        for number in range(130):
            text = f"line {number} of a text " * (LENGTH // 15)
            side = "held_out" if number % 2 else "train"
            file.write(json.dumps({"text": text[: LENGTH - 2], "split": side}) + "\n")
    more = ("--dataset", data, "--eval-held-out", "--max-steps", 1, "--micro-batch", 64)
    few = ("--dataset", data, "--eval-held-out", "--max-steps", 1, "--micro-batch", 4)
    losses = []
    for name, asked in (("much", (*more, "--memory-limit", LIMIT)), ("little", few)):
        done = succeeded(
            train_forked(folder, 1, "--run-name", name, *arguments, "--split", "1", *asked)
        )
        assert ("33 rows at once" in done.stdout) == (name == "much")
        losses.append(figures(folder / "runs" / name, "evaluate", "loss"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


@pytest.mark.rotated
def test_a_stage_of_a_pipeline_has_all_take_fewer_rows_at_once(folder, arguments):
    data = folder / "all-long.jsonl"
    with data.open("w", encoding="ascii") as file:
        for number in range(16):
            file.write(json.dumps({"text": f"line {number} of a text " * (LENGTH // 20)}) + "\n")
    stages = ("--parallel", "pipeline", "--split", "equal", "--dataset", data, "--max-steps", 1)
    few = trained(folder, "few", 2, *arguments, *stages, "--micro-batch", 2)
    much = ("--micro-batch", 16, "--memory-limit", 0.9)
    done = train_forked(folder, 2, "--run-name", "stages", *arguments, *stages, *much)
    assert_names(succeeded(done).stdout, "16 rows", "stage 1 of 2", "rank 0", "continue with 8")
    assert furthest(learned(folder, "stages"), few) < 1e-9


@pytest.mark.rotated
@pytest.mark.parametrize(
    ("ranks", "how", "facts"),
    [
        (1, ("--split", "1", "--micro-batch", 1), ("load_in_4bit=on", "parallel=pipeline")),
        (2, ("--parallel", "pipeline", "--split", "equal"), ("layers 1-4", "split=")),
    ],
)
def test_weights_that_do_not_fit_are_named_in_a_line(folder, arguments, ranks, how, facts):
    large = make_llama(folder / f"large{ranks}", hidden=1024, layers=8)
    typed = ("--model", large, *how, "--memory-limit", 0.6, "--run-name", f"large{ranks}")
    refused(train_forked(folder, ranks, *arguments, *typed), *facts)


@pytest.mark.rotated
def test_where_ranks_compute_together_the_run_ends_and_says_how_to_go_on(
    folder, arguments, careful
):
    parts = (*arguments, "--micro-batch", 6, "--memory-limit", LIMIT, "--parallel", "fsdp")
    done = train_forked(folder, 2, "--run-name", "parts", *parts, "--checkpoint-every", 1)
    assert done.returncode != 0
    assert_names(done.stderr, "6 rows", "resume", "micro_batch=3")
    succeeded(train_forked(folder, 2, "--resume", "parts", "--micro-batch", 3))
    assert furthest(learned(folder, "parts"), careful) < 1e-9
    steps = metrics(folder / "runs" / "parts", "step")
    assert [step["step"] for step in steps] == list(range(1, STEP + 2))
