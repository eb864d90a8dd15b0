"""The split follows the measurement, without any change to the result."""

from __future__ import annotations

import json

import pytest
from support.ranks import learned, metrics, succeeded, train_forked


@pytest.fixture(scope="module")
def measured(tmp_path_factory, arguments):
    """A folder with two runs of two ranks by speed, the arguments, and their output."""
    cwd = tmp_path_factory.mktemp("measured")
    by_speed = ("--split", "auto", "--micro-batch", "auto")
    arguments = [*arguments, *by_speed, "--precision", "fp64", "--max-steps", 8]
    said = []
    for run in ("first", "second"):
        done = succeeded(train_forked(cwd, 2, "--run-name", run, *arguments))
        said.append(done.stdout)
    return cwd, arguments, said


def test_a_rank_is_measured_once_and_the_next_run_starts_at_once(measured):
    cwd, _, (first, second) = measured
    assert "measuring" in first
    assert "measuring" not in second
    kept = [json.loads(path.read_text()) for path in cwd.glob("cache/hearth/data/speeds/*.json")]
    assert sorted(each["case"]["local_rank"] for each in kept) == [0, 1]
    assert all(each["sizes"][0] == 1 and min(each["seconds"]) > 0 for each in kept)


def test_the_plan_of_each_step_is_on_record(measured):
    cwd, *_ = measured
    plans = {plan["step"]: plan for plan in metrics(cwd / "runs" / "first", "plan")}
    assert 1 in plans
    current = None
    for step in metrics(cwd / "runs" / "first", "step"):
        current = plans.get(step["step"], current)
        assert step["rows_by_rank"] == current["rows"]


@pytest.mark.rotated
def test_a_run_that_goes_on_may_take_more_rows_at_once(tmp_path, arguments):
    whole = [*arguments, "--max-steps", 2, "--micro-batch", 1, "--split", "auto"]
    succeeded(train_forked(tmp_path, 2, "--run-name", "night", *whole))
    for path in tmp_path.glob("cache/hearth/data/speeds/*.json"):  # as if four were the fastest
        kept = json.loads(path.read_text())
        kept |= {"sizes": [1, 2, 4], "seconds": [kept["seconds"][0]] * 3, "saturated": True}
        path.write_text(json.dumps(kept))
    succeeded(
        train_forked(tmp_path, 2, "--resume", "night", "--micro-batch", "auto", "--max-steps", 4)
    )
    for plan in metrics(tmp_path / "runs" / "night", "plan"):
        assert plan["micro_batch"] == ([1, 1] if plan["step"] < 3 else [4, 4])
    assert plan["step"] >= 3


@pytest.mark.rotated
def test_compressed_gradients_are_near_and_the_numbers_beside_them_exact(measured):
    cwd, arguments, _ = measured
    start, runs = {}, ("plain", "packed")
    for run, how in zip(runs, ("none", "bf16"), strict=True):
        fixed = ("--split", "2:1", "--micro-batch", 1, "--precision", "fp32", "--compress", how)
        succeeded(train_forked(cwd, 2, "--run-name", run, *arguments, *fixed))
        start[run] = metrics(cwd / "runs" / run, "start")[0]
    assert start["packed"]["exchange_bytes"] < 0.51 * start["plain"]["exchange_bytes"]
    plain, packed = ([*metrics(cwd / "runs" / run, "step")] for run in runs)
    assert packed[0]["loss"] == plain[0]["loss"]  # summed before anything was learned
    for one, other in zip(plain, packed, strict=True):
        assert one["tokens"] == other["tokens"]
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-2)
        assert other["grad_norm"] == pytest.approx(one["grad_norm"], rel=2e-2)
    assert any(
        (learned(cwd, "plain")[name] != value).any()
        for name, value in learned(cwd, "packed").items()
    )
