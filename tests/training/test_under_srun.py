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


def srun(cwd: Path, *command: object, jobs: str = "77", **more: str) -> list[tuple[int, str, str]]:
    """Run a command as a task for each of `jobs`; return status, output and errors by rank."""
    common = environment(cwd) | {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_NUM_TASKS": str(len(jobs)),
        "SLURM_GTIDS": ",".join(map(str, range(len(jobs)))),
        "MASTER_PORT": str(free_port()),
    }
    tasks = [
        subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=cwd,
            env=common
            | {"SLURM_JOB_ID": job, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
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
