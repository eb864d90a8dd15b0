"""The result does not depend on which ranks took part, nor on an interruption."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file
from support.ranks import command, environment, metrics, train_forked

from hearth.config import resolve
from hearth.model.load import load_model

STEPS = 20


def learned(cwd, run):
    folder = cwd / "runs" / run
    whole = folder / "model" / "model.safetensors"
    return load_file(whole if whole.exists() else folder / "adapter" / "adapter_model.safetensors")


def trained(cwd, run, ranks, *arguments):
    done = train_forked(cwd, ranks, "--run-name", run, *arguments)
    assert done.returncode == 0, done.stderr
    return learned(cwd, run)


WAYS = {"lora": (), "whole": ("--no-lora",), "scratch": ("--no-lora", "--scratch")}
SPLITS = [
    pytest.param(2, (), id="2 ranks, equal"),
    pytest.param(2, ("--split", "1:0", "--micro-batch", 3), id="2 ranks, one idle"),
    pytest.param(3, ("--split", "4:2:1", "--micro-batch", 2), id="3 ranks, 4:2:1"),
]


@pytest.fixture(scope="module")
def alone(tmp_path_factory, tiny_model, tiny_data):
    """Return what one process computes: a folder, and the arguments that others repeat."""
    cwd = tmp_path_factory.mktemp("alone")
    common = [
        *("--model", tiny_model, "--dataset", tiny_data, "--sequence-length", 96),
        *("--learning-rate", 0.01, "--global-batch", 7, "--max-steps", STEPS),
        *("--split", "equal", "--micro-batch", 1, "--wandb", "off", "--no-evaluate"),
    ]
    for way, more in WAYS.items():
        trained(cwd, way, 1, *common, *more, "--precision", "fp64")
    trained(cwd, "fp32", 1, *common, "--precision", "fp32")
    return cwd, common


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("ranks", "split"), SPLITS)
def test_any_split_equals_one_process_in_float64(alone, tmp_path, ranks, split, way):
    cwd, common = alone
    expected = learned(cwd, way)
    found = trained(tmp_path, way, ranks, *common, *split, *WAYS[way], "--precision", "fp64")
    assert found.keys() == expected.keys()
    assert max((found[name] - expected[name]).abs().max() for name in found) < 1e-9


def test_a_split_changes_little_of_what_was_learned_in_float32(alone, tmp_path):
    cwd, common = alone
    expected = learned(cwd, "fp32")
    found = trained(tmp_path, "fp32", 3, *common, "--split", "4:2:1", "--precision", "fp32")
    settings = resolve({"model": str(common[1]), "lora_rank": 16}).settings
    torch.manual_seed(settings.seed)
    model = load_model(settings, common[1], torch.device("cpu"), "fp32")
    start = {name.replace(".default", ""): value for name, value in model.trainable()}

    def flat(weights):
        return torch.cat([(weights[name] - start[name]).flatten() for name in sorted(weights)])

    change, other = flat(expected), flat(found)
    assert change.norm() > 0.1
    assert (change - other).norm() / change.norm() < 1e-3


def kill_after(step, cwd, run, ranks, *arguments):
    """Train until `step` steps are recorded, then kill a rank as a crash would."""
    process = subprocess.Popen(
        command(ranks, "--run-name", run, *arguments),
        cwd=cwd,
        env=environment(cwd),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    record = cwd / "runs" / run / "metrics.jsonl"
    try:
        limit = time.monotonic() + 60
        while not record.exists() or len(metrics(record.parent, "step")) < step:
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.02)
    finally:
        children = subprocess.run(
            ["pgrep", "-P", str(process.pid)], capture_output=True, text=True
        ).stdout.split()
        for pid in [*map(int, children), process.pid]:
            os.kill(pid, signal.SIGKILL)
        process.wait(10)


def test_a_killed_and_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path, arguments):
    more = [*arguments, "--max-steps", 60, "--checkpoint-every", 4, "--split", "2:1"]
    expected = trained(tmp_path, "whole", 2, *more)
    kill_after(9, tmp_path, "broken", 2, *more)
    before = metrics(tmp_path / "runs" / "broken", "end")
    done = train_forked(tmp_path, 2, "--resume", "broken")
    assert done.returncode == 0, done.stderr
    found = learned(tmp_path, "broken")
    assert before == []
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    steps = [step["step"] for step in metrics(tmp_path / "runs" / "broken", "step")]
    assert steps == list(range(1, 61))
    losses = [
        [step["loss"] for step in metrics(tmp_path / "runs" / run, "step")]
        for run in ("whole", "broken")
    ]
    assert losses[0] == losses[1]


def test_a_run_that_was_asked_to_stop_stops_after_its_step_and_goes_on_later(tmp_path, arguments):
    more = [*arguments, "--max-steps", 12]
    expected = trained(tmp_path, "whole", 1, *more)
    folder = tmp_path / "runs" / "paused"
    folder.mkdir(parents=True)
    (folder / "stop").touch()
    trained(tmp_path, "paused", 1, *more)
    end = metrics(folder, "end")[0]
    assert (end["state"], end["step"]) == ("stopped", 1)
    (folder / "stop").unlink()
    assert train_forked(tmp_path, 1, "--resume", "paused").returncode == 0
    found = learned(tmp_path, "paused")
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [end["state"] for end in metrics(folder, "end")] == ["finished"]


def test_a_run_that_died_before_its_first_checkpoint_begins_again(tmp_path, arguments):
    more = [*arguments, "--max-steps", 60]
    expected = trained(tmp_path, "whole", 1, *more)
    kill_after(3, tmp_path, "broken", 1, *more)
    done = train_forked(tmp_path, 1, "--resume", "broken")
    assert "beginning at step 0" in done.stdout
    found = learned(tmp_path, "broken")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_more_steps_take_the_learning_rate_from_the_longer_curve(tmp_path, arguments):
    trained(tmp_path, "night", 1, *arguments, "--max-steps", 4)
    assert train_forked(tmp_path, 1, "--resume", "night", "--max-steps", 8).returncode == 0
    rates = [step["learning_rate"] for step in metrics(tmp_path / "runs" / "night", "step")]
    assert len(rates) == 8
    assert all(rate > 0 for rate in rates[4:])
    assert rates[4:] == sorted(rates[4:], reverse=True)


def test_resuming_on_other_ranks_shares_the_checkpoint(tmp_path, arguments):
    more = [*arguments, "--max-steps", 12, "--precision", "fp64"]
    expected = trained(tmp_path, "whole", 1, *more)
    folder = tmp_path / "runs" / "moved"
    folder.mkdir(parents=True)
    (folder / "stop").touch()
    trained(tmp_path, "moved", 1, *more)
    (folder / "stop").unlink()
    assert train_forked(tmp_path, 2, "--resume", "moved", "--split", "1:3").returncode == 0
    found = learned(tmp_path, "moved")
    assert max((found[name] - expected[name]).abs().max() for name in found) < 1e-9


def test_the_best_adapter_is_kept_and_survives_a_resume_on_other_ranks(tmp_path, arguments):
    more = [a for a in arguments if a != "--no-evaluate"]
    more += ["--eval-every", 4, "--checkpoint-every", 8, "--learning-rate", 0.05]
    trained(tmp_path, "night", 2, *more, "--max-steps", 8)
    folder = tmp_path / "runs" / "night"
    told = metrics(folder, "evaluate")
    assert [(each["step"], each["when"]) for each in told] == [
        (0, "before"),
        (4, "during"),
        (8, "after"),
    ]
    kept = (folder / "best" / "adapter_model.safetensors").read_bytes()
    last = (folder / "adapter" / "adapter_model.safetensors").read_bytes()
    assert (kept == last) == (told[2]["loss"] < told[1]["loss"])

    shutil.rmtree(folder / "best")
    done = train_forked(tmp_path, 1, "--resume", "night", "--max-steps", 12)
    assert done.returncode == 0, done.stderr
    better = metrics(folder, "evaluate")[-1]["loss"] < min(each["loss"] for each in told[1:])
    last = (folder / "adapter" / "adapter_model.safetensors").read_bytes()
    again = (folder / "best" / "adapter_model.safetensors").read_bytes()
    assert again == (last if better else kept)
