"""Calls to Slurm's commands, and the job of a run in its queue.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import os

# Ansible ships these files under a package of its own.
from .commands import NOT_RUN, TIMED_OUT, run

UNKNOWN = "unknown"
"""State of a job in the queue while Slurm's controller does not answer."""

ENDED = frozenset(
    (
        "", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL",
        "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT",
    )
)  # fmt: skip
"""States of a job that has left the queue; it has none once Slurm has forgotten it."""

_ANSWER = 10.0


def call(*command: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Run a command of Slurm; return its status, output and errors.

    It never raises: no answer and no such command count as failure.
    """
    done = run(*command, seconds=_ANSWER, environment=environment or os.environ)
    if done.returncode in (NOT_RUN, TIMED_OUT) and not done.stdout:
        return 1, "", f"{command[0]}: {done.stderr}"
    return done.returncode, done.stdout, done.stderr


def option_name(option: str) -> str:
    """Return the name of an option of sbatch that may have its value, such as `--mem`."""
    return option.replace("=", " ").partition(" ")[0]


def job_name(run: str) -> str:
    """Return the name of the job that carries a run."""
    return f"hearth-{run}"


def queue_command(run: str) -> list[str]:
    """Return the command that lists the run's jobs, those that ended minutes ago included."""
    return [
        *("squeue", "--me", "--noheader", "--states=all"),
        *(f"--name={job_name(run)}", "--format=%i|%T|%r"),
    ]


def newest_job(status: int, output: str, errors: str) -> dict[str, str]:
    """Return the `job` (its number), `state` and `reason` of the run's newest job.

    They come from what `queue_command` has answered, and are empty if there is no job.
    """
    if status:
        why = errors.strip().splitlines() or ["squeue failed"]
        return {"job": "", "state": UNKNOWN, "reason": why[-1]}
    jobs = [line.split("|", 2) for line in output.splitlines() if line.count("|") >= 2]
    job, state, reason = max(jobs, key=lambda each: _number(each[0]), default=("", "", ""))
    return {"job": job, "state": state, "reason": reason}


def _number(job: str) -> int:
    """Return the number of a job; an array's has more behind it, such as 12_3."""
    digits = job.strip().partition("_")[0]
    return int(digits) if digits.isdecimal() and len(digits) < 20 else -1


def queued(name: str) -> dict[str, str]:
    """Ask Slurm for the newest job of a run, as `newest_job` returns it."""
    return newest_job(*call(*queue_command(name)))
