"""Ranks that learn by themselves for some steps: alike after each round, and near the exact run."""

from __future__ import annotations

import pytest
import torch
from support.facts import assert_names
from support.ranks import figures, learned, metrics, succeeded, train_forked

EVERY = 4
STEPS = 22
RANKS = 3


@pytest.fixture(scope="module")
def common(arguments):
    """Three ranks, one without work."""
    return [
        *(*arguments, "--eval-held-out", "--split", "4:2:0", "--micro-batch", 2),
        *("--max-steps", STEPS, "--checkpoint-every", 6, "--log-every", 8),
    ]


def trained(cwd, run, *arguments):
    done = succeeded(train_forked(cwd, RANKS, "--run-name", run, *arguments, apart=True))
    return done.stdout


@pytest.fixture(scope="module")
def rounds(tmp_path_factory, common):
    """The folder of a run in rounds, and its output."""
    cwd = tmp_path_factory.mktemp("rounds")
    return cwd, trained(cwd, "night", "--sync-every", EVERY, *common)


def of_run(cwd):
    return cwd / "rank0" / "runs" / "night"


def test_all_ranks_end_with_the_same_bits_also_one_that_never_had_a_row(rounds):
    cwd, said = rounds
    assert_names(said, "sync_every=4")
    first, *others = (learned(cwd / f"rank{rank}", "night") for rank in range(RANKS))
    for other in others:
        assert first.keys() == other.keys()
        assert all(torch.equal(first[name], other[name]) for name in first)


def test_lines_and_checkpoints_come_at_the_end_of_the_round_in_which_they_are_due(rounds):
    cwd, _ = rounds
    steps = metrics(of_run(cwd), "step")
    assert [step["step"] for step in steps] == [8, 12, 16, 20, 22]  # 12, 20: before a checkpoint
    assert figures(of_run(cwd), "checkpoint", "step") == [8, 12, 20, 22]
    rows = sum(sum(step["rows_by_rank"]) for step in steps)
    epochs, more = divmod(STEPS, 3)  # of three steps each: seven rows, seven, and the rest
    assert rows == epochs * metrics(of_run(cwd), "start")[0]["rows"] + 7 * more
    assert steps[-1]["loss"] < steps[0]["loss"]
    assert all(step["grad_norm"] > 0 for step in steps)


def test_the_bytes_are_counted_once_a_round(rounds):
    cwd, _ = rounds
    start, end = metrics(of_run(cwd), "start")[0], metrics(of_run(cwd), "end")[0]
    gradients = 4 * start["trainable_parameters"]
    assert 3 * gradients < start["exchange_bytes"] < 3 * gradients + 4 * 80
    assert end["exchanged_bytes"] == 6 * start["exchange_bytes"]  # 22 steps are six rounds


@pytest.mark.rotated
def test_the_held_out_loss_comes_near_that_of_an_exchange_in_every_step(rounds, common, tmp_path):
    cwd, _ = rounds
    trained(tmp_path, "night", *common)
    before, exact = (each["loss"] for each in metrics(of_run(tmp_path), "evaluate"))
    again, approximate = (each["loss"] for each in metrics(of_run(cwd), "evaluate"))
    assert again == before
    assert exact < before - 0.1
    assert approximate == pytest.approx(exact, rel=0.02)


@pytest.mark.rotated
def test_a_stop_waits_for_the_round_and_what_goes_on_has_the_same_bits(rounds, common, tmp_path):
    cwd, _ = rounds
    for rank in range(RANKS):
        folder = tmp_path / f"rank{rank}" / "runs" / "night"
        folder.mkdir(parents=True)
    (of_run(tmp_path) / "stop").touch()
    said = trained(tmp_path, "night", "--sync-every", EVERY, *common)
    assert_names(said, "after step 4")
    succeeded(train_forked(tmp_path, RANKS, "--resume", "night", apart=True))
    whole, again = (learned(folder / "rank1", "night") for folder in (cwd, tmp_path))
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.rotated
def test_the_plans_of_a_rounds_steps_are_on_record_and_come_to_its_rows(common, tmp_path):
    trained(tmp_path, "night", "--sync-every", EVERY, *common, "--split", "auto", "--log-every", 4)
    rows_from = {each["step"]: each["rows"] for each in metrics(of_run(tmp_path), "plan")}
    rows, since = None, [0] * RANKS
    lines = {line["step"]: line["rows_by_rank"] for line in metrics(of_run(tmp_path), "step")}
    for step in range(1, STEPS + 1):
        rows = rows_from.get(step, rows)
        since = [sum(each) for each in zip(since, rows, strict=True)]
        if step in lines:
            assert lines[step] == since
            since = [0] * RANKS
    assert step in lines
