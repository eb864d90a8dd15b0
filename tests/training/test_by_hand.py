"""The script as a person runs it: its output, and its end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from support.facts import assert_names
from support.local_cluster import ended
from support.ranks import (
    SCRIPT,
    command,
    environment,
    metrics,
    python,
    refused,
    succeeded,
    train,
    train_forked,
)
from support.rotated import in_turn
from support.supervisors import free_port
from support.waiting import HANG

from hearth.config import read_run
from hearth.record.checkpoint import newest


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        (["--max-stpes", 3], ["--max-stpes", "'--max-steps'"]),
        (["--backend", "unsloth"], ["backend: unsloth", "NVIDIA GPU"]),
        (["--lora-targets", "q_proj,nope"], ["layer nope", "q_proj"]),
        *in_turn(
            (["--dataset", "nowhere.jsonl"], ["nowhere.jsonl"]),
            (["--resume", "night"], ["no run 'night'"]),
            (["--precision", "fp16"], ["precision: fp16"]),
            (["--split", "2:1"], ["split: 2:1", "2 shares", "1 rank"]),
        ),
    ],
)
def test_a_wrong_input_ends_before_training_with_one_message(tmp_path, arguments, changed, facts):
    said = refused(train_forked(tmp_path, 1, *arguments, *changed), *facts)
    assert said.count("hearth: error:") == 1
    assert not list(tmp_path.glob("runs/*/metrics.jsonl"))


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"RANK": "0"}, 1),
        ({"RANK": "1", "LOCAL_RANK": "1"}, 0),
        ({"RANK": "1", "LOCAL_RANK": "0"}, 0),
        ({"RANK": "1", "LOCAL_RANK": "0", "HEARTH_NODE": "laptop"}, 1),
        ({"RANK": "2", "LOCAL_RANK": "1", "HEARTH_NODE": "laptop"}, 0),
    ],
)
def test_a_wrong_input_is_told_once_by_hand_and_once_in_the_log_of_each_node(
    tmp_path, changed, told
):
    done = python(tmp_path, SCRIPT, "--max-stpes", 3, **changed)
    assert done.returncode == 2
    assert done.stderr.count("hearth: error:") == told


def test_a_folder_that_cannot_be_written_is_named(tmp_path, arguments):
    (tmp_path / "runs").write_text("a file in the way")
    refused(train_forked(tmp_path, 1, *arguments), f"{tmp_path}/runs")


@pytest.mark.rotated
@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to mount a small disk")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is missing")
def test_a_disk_that_fills_up_ends_the_run_and_leaves_the_last_good_checkpoint(tmp_path, arguments):
    """On a disk of its own, in a mount namespace of its own, filled behind the run's back."""
    disk = tmp_path / "runs"
    disk.mkdir()
    typed = command(1, "--run", "night", *arguments, "--max-steps", 5000, "--checkpoint-every", 1)
    script = f"""
        mount -t tmpfs -o size=1100m tmpfs {disk}
        (until ls {disk}/night/checkpoints/step-*; do sleep 0.05; done >/dev/null 2>&1
        cat /dev/zero >{disk}/filler) &
        {" ".join(typed)}
        status=$?
        cp -r {disk}/night/checkpoints {tmp_path}
        exit $status
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    named = re.search(r"step-\d+", refused(done, "full")).group()
    assert newest(tmp_path / "checkpoints", warn=pytest.fail).path.name == named


@pytest.mark.rotated
def test_another_run_of_the_same_name_on_a_node_is_not_written_over(tmp_path, arguments):
    """As when a second computer starts a run on the same nodes."""
    succeeded(train_forked(tmp_path, 1, "--run", "night", "--max-steps", 2, *arguments))
    record = (tmp_path / "runs" / "night" / "run.yml").read_text()
    run_file = tmp_path / "run.yml"
    run_file.write_text(re.sub("created: .*", "created: '2020-01-01T00:00:00+00:00'", record))
    refused(train_forked(tmp_path, 1, "--run-file", run_file), "another run 'night'")


def test_dry_run_shows_every_setting_with_its_origin_and_starts_nothing(tmp_path, arguments):
    done = succeeded(train_forked(tmp_path, 1, *arguments, "--dry-run"))
    table = [line.split() for line in done.stdout.splitlines()]
    assert ["global_batch", "7", "command", "line"] in table
    assert ["seed", "1", "default"] in table
    assert not (tmp_path / "runs").exists()


def test_a_preview_shows_the_answers_and_the_steps_and_trains_nothing(tmp_path, arguments):
    done = succeeded(train_forked(tmp_path, 1, *arguments, "--preview", "2"))
    assert_names(done.stdout, "example 2", "<|im_end|>", "learned", "steps", "held out")
    assert "example 3" not in done.stdout
    assert not (tmp_path / "runs").exists()


def test_a_run_that_got_worse_says_so_before_anything_else_at_its_end(tmp_path, arguments):
    """It learns the letter a, and all that is held out are others."""
    letters = [("a", "train")] * 20 + [("z", "held_out")] * 2
    texts = [{"text": letter * 60, "split": split} for letter, split in letters]
    data = tmp_path / "letters.jsonl"
    data.write_text("\n".join(map(json.dumps, texts)))
    worse = ("--dataset", data, "--eval-held-out", "--learning-rate", 0.05, "--max-steps", 12)
    done = succeeded(train_forked(tmp_path, 1, *arguments, *worse))
    lines = done.stdout.splitlines()
    said, finished = (
        next(number for number, line in enumerate(lines) if line.startswith(word))
        for word in ("WORSE THAN BEFORE", "finished:")
    )
    assert said == finished - 1
    assert_names(lines[said], "learning_rate", "epochs")


def test_a_run_keeps_the_steps_that_auto_was_resolved_to(tmp_path, tiny_model, tiny_data):
    plain = (
        "--model",
        tiny_model,
        "--dataset",
        tiny_data,
        "--wandb",
        "off",
        "--eval-held-out",
        "off",
    )
    given = (*plain, "--run-name", "night", "--epochs", 1, "--micro-batch", 1, "--split", "equal")
    done = succeeded(train(tmp_path, 2, *given))
    folder = tmp_path / "runs" / "night"
    run, steps = read_run(folder / "run.yml"), metrics(folder, "step")
    assert not run.settings.automatic_steps
    assert {run.origins[name] for name in ("global_batch", "warmup_steps")} == {"auto"}
    assert f"{len(steps)} steps, " in done.stdout
    assert all(step["learning_rate"] > 0 for step in steps)
    more = ("--resume", "night", "--max-steps", len(steps) + 1)
    succeeded(train(tmp_path, 2, *more))
    assert read_run(folder / "run.yml").settings.global_batch == run.settings.global_batch


def test_a_run_leaves_its_contract_in_its_folder(tmp_path, arguments):
    more = (*arguments, "--eval-held-out", "--max-steps", 3, "--wandb", "auto")
    done = succeeded(train(tmp_path, 2, "--run-name", "night", *more))
    folder = tmp_path / "runs" / "night"
    assert {path.name for path in folder.iterdir()} >= {
        "run.yml", "metrics.jsonl", "adapter", "checkpoints", "tensorboard",
    }  # fmt: skip
    assert len(list(folder.glob("wandb/offline-run-*"))) == 1  # there is no key
    start, *_ = metrics(folder, "start")
    assert (start["world_size"], start["steps"], start["gradients"]) == (2, 3, "gloo")
    for step in metrics(folder, "step"):
        for name in ("tokens_per_second", "compute_seconds", "wait_seconds", "peak_memory_mib"):
            assert len(step[f"{name}_by_rank"]) == 2
        assert {"loss", "learning_rate", "grad_norm", "tokens", "epoch", "eta_seconds"} <= set(step)
        assert sum(step["rows_by_rank"]) in (3, 7)
    before, after = metrics(folder, "evaluate")
    assert after["tokens"] == before["tokens"] > 0
    assert [sample["when"] for sample in metrics(folder, "sample")] == ["before", "after"]
    assert_names(done.stdout, "step 3/3", "loss", "tokens/s")
    assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["kind"] == "end"


MORE = ("--weight-decay", 0.01, "--clip-norm", 0)


@pytest.mark.parametrize(
    "way",
    [
        ["--precision", "bf16"],
        *in_turn(
            ["--optimizer", "adamw_8bit"],
            ["--packing", "off", "--micro-batch", 3, "--lora-dropout", 0.1],
            ["--gradient-checkpointing", "--schedule", "linear", *MORE],
        ),
    ],
    ids=lambda way: way[0].lstrip("-"),
)
def test_every_way_of_computing_learns_on_a_cpu(tmp_path, arguments, way):
    succeeded(train_forked(tmp_path, 1, "--run", "night", "--max-steps", 8, *arguments, *way))
    first, *_, last = metrics(tmp_path / "runs" / "night", "step")
    assert last["loss"] < first["loss"]


# Runs of three ranks, each a process that has imported torch already; prints their exit statuses.
PARTINGS = """
import multiprocessing, os, socket, sys
import torch
from hearth.trainer.exchange import Exchange
from hearth.ranks.world import join, leave

def rank(number, port):
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "3"}
    os.environ.update(address, RANK=str(number), LOCAL_RANK=str(number))
    world = join()
    exchange = Exchange([torch.nn.Parameter(torch.zeros(100_000))], world)
    for _ in range(2):
        exchange.run({"stop": False, "keep": False, "pause": False}, tokens=1)
    leave(world)

def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

fork = multiprocessing.get_context("fork")
for _ in range(int(sys.argv[1])):
    port = free_port()
    ranks = [fork.Process(target=rank, args=(number, port)) for number in range(3)]
    for each in ranks: each.start()
    for each in ranks: each.join(30)
    print([each.exitcode for each in ranks])
"""


@pytest.mark.rotated
def test_fifty_runs_of_three_ranks_end_in_fifty_clean_exits(tmp_path):
    done = python(tmp_path, "-c", PARTINGS, "50")
    assert done.stdout.splitlines() == ["[0, 0, 0]"] * 50, done.stderr


@pytest.mark.rotated
def test_two_torchruns_are_one_run_whose_files_both_machines_have(tmp_path, arguments):
    launchers = []
    meeting = (f"--master-port={free_port()}", "--master-addr=127.0.0.1", "--nnodes=2")
    for rank in range(2):
        cwd = tmp_path / f"machine{rank}"
        cwd.mkdir()
        torchrun = (sys.executable, "-m", "torch.distributed.run", f"--node-rank={rank}", *meeting)
        words = [*torchrun, SCRIPT, *arguments, "--run-name", "night", "--max-steps", 2]
        launchers.append(
            subprocess.Popen(
                list(map(str, words)),
                cwd=cwd,
                env=environment(cwd),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    screens = [ended(each) for each in launchers]
    assert_names(screens[0], "step 2/2")
    for rank in range(2):
        run = tmp_path / f"machine{rank}" / "runs" / "night"
        assert newest(run / "checkpoints", print) is not None
        assert (run / "adapter" / "adapter_config.json").exists()
