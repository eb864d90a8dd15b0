"""Tasks of Slurm's steps: their variables are real, and processes on loopback stand in for srun."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.facts import assert_names
from support.ranks import SCRIPT, environment, figures
from support.supervisors import TRAINING, free_port
from support.waiting import HANG

UNDER_SRUN = TRAINING / "under_srun.py"


def srun(
    cwd: Path, *command: object, jobs: str = "77", nodes: int = 1, **more: str
) -> list[tuple[int, str, str]]:
    """Run a command as a task for each of `jobs`; return status, output and errors by rank.

    With as many `nodes` as tasks, each task is the only one of its node, and all nodes have `cwd`.
    """
    common = environment(cwd) | {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_TASKS": str(len(jobs)),
        "MASTER_PORT": str(free_port()),
    }
    own = len(jobs) // nodes  # tasks of a node
    tasks = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=cwd,
            env=common
            | {"SLURM_JOB_ID": job, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank % own)}
            | {"SLURM_GTIDS": ",".join(map(str, range(rank - rank % own, rank - rank % own + own)))}
            | more,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, job in enumerate(jobs)
    ]
    try:
        said = [each.communicate(timeout=HANG) for each in tasks]
        return [(task.returncode, *both) for task, both in zip(tasks, said, strict=True)]
    finally:
        for each in tasks:
            each.kill()


def test_a_torchrun_program_finds_its_rank_and_its_own_arguments(tmp_path):
    program = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"
    for rank, (status, said, _) in enumerate(srun(tmp_path, UNDER_SRUN, "-c", program, "--run", 3)):
        arguments, found = json.loads(said)
        assert (status, arguments) == (0, ["--run", "3"])
        ranks = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR")
        assert [found[name] for name in ranks] == [str(rank), str(rank), "2", "2", "localhost"]


@pytest.mark.rotated
def test_two_tasks_train_one_model(tmp_path, tiny_model, tiny_data):
    typed = ("--model", tiny_model, "--dataset", tiny_data, "--split", "equal", "--micro-batch", 1)
    short = ("--max-steps", 2, "--sequence-length", 32, "--global-batch", 2, "--run", "night")
    ended = srun(tmp_path, SCRIPT, *typed, *short)
    assert [status for status, *_ in ended] == [0, 0], ended
    assert figures(tmp_path / "runs" / "night", "start", "world_size") == [2]
    assert figures(tmp_path / "runs" / "night", "step", "rows_by_rank") == [[1, 1]] * 2


@pytest.mark.rotated
def test_ranks_of_two_jobs_that_were_sent_to_one_address_refuse_to_train(
    tmp_path, tiny_model, tiny_data
):
    typed = ("--model", tiny_model, "--dataset", tiny_data, "--split", "equal", "--micro-batch", 1)
    for status, _, errors in srun(tmp_path, SCRIPT, *typed, jobs="78"):
        assert status == 2
        assert_names(errors, "7.0", "8.0", "rank 1")
    assert not (tmp_path / "runs").exists()


@pytest.mark.rotated
def test_nodes_with_one_home_keep_one_run_and_resume_it(tmp_path, tiny_model, tiny_data):
    typed = ("--model", tiny_model, "--dataset", tiny_data, "--split", "equal", "--micro-batch", 1)
    short = ("--sequence-length", 32, "--global-batch", 3, "--eval-every", 2)
    every = ("--checkpoint-every", 1, "--checkpoint-keep", 2, "--run", "night")
    ended = srun(tmp_path, SCRIPT, *typed, *short, *every, "--max-steps", 6, jobs="777", nodes=3)
    assert [status for status, *_ in ended] == [0] * 3, ended
    run = tmp_path / "runs" / "night"
    assert figures(run, "step", "step") == [*range(1, 7)]
    assert figures(run, "start", "world_size") == [3]
    assert sorted(each.name for each in (run / "checkpoints").iterdir()) == [
        "step-00000005",
        "step-00000006",
    ]
    assert not list((tmp_path / "runs").glob(".*"))
    # Resumed without the node that wrote: another one writes on.
    ended = srun(tmp_path, SCRIPT, "--resume", "night", "--max-steps", 8, jobs="88", nodes=2)
    assert [status for status, *_ in ended] == [0] * 2, ended
    assert figures(run, "step", "step") == [*range(1, 9)]
    assert figures(run, "start", "world_size") == [3, 2]
