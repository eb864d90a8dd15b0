"""The job of Slurm that starts a run's supervisors, one task on each node.

A launch leaves a record in the state `queued` on every node and submits one job on rank 0's node.
A requeued job starts the supervisors again, which resume the run.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError, did_you_mean
from hearth.base.places import NOTIFY, PUSH_TOKEN
from hearth.base.slurm import ENDED, UNKNOWN, call, option_name, queued
from hearth.supervisor.cause import Cause
from hearth.supervisor.record import RunRecord
from hearth.supervisor.spec import Spec, record_file

PROGRAMS = ("sbatch", "srun", "squeue", "scancel", "scontrol", "sinfo")
OWN_OPTIONS = ("--nodes", "-N", "--nodelist", "-w", "--ntasks", "-n", "--array", "-a", "--wrap")
"""Options of sbatch that follow from the run's nodes, so that a person cannot set them."""

CANCEL_TIMEOUT = 15.0

_OF_THIS_NODE = ("HEARTH_", "PYTHON", "SLURM_")
_CURES = {
    "account": "`sacctmgr show associations user=$USER` lists yours; correct -e account=",
    "partition": "there are {partitions}; correct -e partition= or hearth_slurm_options",
    "time": "`scontrol show partition` has the limits; correct -e time_limit=",
    "node": "`scontrol show node {nodes}` has what they offer; correct hearth_slurm_options",
    "": "correct hearth_slurm_options",
}
"""Cures by a word of Slurm's refusal."""


def own_job(spec: Spec) -> str | None:
    """Return the number of the job that carries this process; None for a run without Slurm."""
    return os.environ.get("SLURM_JOB_ID", "") if spec.slurm else None


def check(own: str, nodes: Mapping[str, str], options: Sequence[str]) -> dict[str, Any]:
    """Return the `findings` against a job on these nodes, and Slurm's `gpus` by node.

    `own` is Slurm's name of this node, and `nodes` are its names by node in order of rank; without
    any, as on all nodes but rank 0's, the `options` are not tried.
    """
    answer: dict[str, Any] = {"findings": [], "gpus": {}}
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        answer["findings"] = [
            f"{', '.join(missing)} is not installed here: install Slurm's commands (Debian's "
            "package slurm-client), or train without Slurm (-e launcher=hearth)"
        ]
        return answer
    status, output, errors = call("sinfo", "--noheader", "--Node", "--format=%N|%P|%G")
    if status:
        answer["findings"] = [
            f"Slurm's controller does not answer ({_last(errors)}): start slurmctld on its "
            "machine, or train without Slurm (-e launcher=hearth)"
        ]
        return answer
    there = [line.split("|") for line in output.splitlines()]
    gpus = {name: _gpus(resources) for name, _, resources in there}
    answer["gpus"] = {node: gpus.get(name, 0) for node, name in nodes.items()}
    if own not in gpus:
        answer["findings"] = [
            f"Slurm knows no node '{own}'{did_you_mean(own, gpus)}, only {', '.join(gpus)}: set "
            "hearth_slurm_node of this host, or take other nodes (-e nodes=)"
        ]
    answer["findings"] += [
        f"hearth_slurm_options: {option} is Hearth's to set; choose nodes with -e nodes=A,B"
        for option in options
        if nodes and option_name(option) in OWN_OPTIONS
    ]
    if nodes and gpus.keys() >= {*nodes.values()} and not answer["findings"]:
        answer["findings"] = _refusals(nodes.values(), options, [part for _, part, _ in there])
    return answer


def _gpus(resources: str) -> int:
    """Return the number of GPUs in a node's generic resources, such as `gpu:a100:4(S:0-1)`."""
    return sum(map(int, re.findall(r"\bgpu(?::[^:,(]+)?:(\d+)", resources)))


def _refusals(nodes: Iterable[str], options: Sequence[str], partitions: list[str]) -> list[str]:
    """Return a finding if Slurm refuses a job on these nodes with these options.

    It is submitted on hold and cancelled at once: `--test-only` would also refuse a drained node,
    and a job may wait for one.
    """
    names = ",".join(nodes)
    where = [f"--nodes={names.count(',') + 1}", f"--nodelist={names}", "--ntasks-per-node=1"]
    held = ("--hold", "--parsable", "--job-name=hearth-check", "--output=/dev/null")
    status, output, errors = call("sbatch", *where, *options, *held, "--wrap=true")
    if not status:
        call("scancel", output.strip().partition(";")[0])
        return []
    why = "; ".join(line.removeprefix("sbatch: error: ") for line in errors.strip().splitlines())
    word = next(word for word in _CURES if word in why.lower())
    known = ", ".join(sorted({each.rstrip("*") for each in partitions}))
    given = f" with {' '.join(options)}" if options else ""
    return [
        f"Slurm refuses a job on {names}{given}: {why}: "
        + _CURES[word].format(partitions=known, nodes=names)
    ]


def queue_record(spec: Spec) -> dict[str, Any]:
    """Record that this node's part in a run waits for Slurm; return the record."""
    record = RunRecord.from_spec(spec, state="queued", job="")
    record.write(spec.record)
    return asdict(record)


def submit(spec: Spec) -> str:
    """Submit the run's batch script and return the number of its job.

    The job inherits this process's environment, and with it the secrets of the ranks.

    Raises:
        LaunchError: Slurm refuses it.
    """
    own = {
        name: text
        for name, text in os.environ.items()
        if name not in spec.environment
        and (name in (NOTIFY, PUSH_TOKEN) or not name.startswith(_OF_THIS_NODE))
    }
    status, output, errors = call("sbatch", "--parsable", str(spec.job_script), environment=own)
    if status:
        raise LaunchError(
            f"{spec.node}: Slurm refuses {spec.job_script}: {_last(errors)}: correct partition, "
            "account or hearth_slurm_options"
        )
    job = output.strip().partition(";")[0]
    record = RunRecord.from_spec(spec, state="queued", job=job)
    record.write(spec.record)  # a supervisor that has begun meanwhile writes its own every 2 s
    return job


def cancel(workspace: Path, record: dict[str, Any]) -> bool:
    """Cancel the job of a run that waits in Slurm's queue, and close the run's record here.

    Return whether there was such a job.

    Raises:
        LaunchError: Slurm does not answer, or does not cancel it.
    """
    run, until = record["run"], time.monotonic() + CANCEL_TIMEOUT
    first = found = queued(run)
    errors = ""
    while found["state"] not in ENDED and time.monotonic() < until:
        if found["state"] != UNKNOWN:
            errors = call("scancel", found["job"])[2]
        time.sleep(0.2)
        found = queued(run)
    if found["state"] not in ENDED:
        why = _last(errors) or found["reason"]
        raise LaunchError(
            f"{record['node']}: the job of run '{run}' could not be cancelled ({why}): try "
            f"`scancel {found['job'] or '--name=hearth-' + run}`"
        )
    job = f"job {first['job']}" if first["job"] else "its job"
    message = f"stopped while {job} waited in Slurm's queue"
    closed = RunRecord(**record | {"cause": Cause(record["node"], None, "stopped", message)})
    closed.enter("stopped")
    closed.write(record_file(workspace, run))
    return first["state"] not in ENDED


def end_of_job(job: str) -> tuple[bool, str]:
    """Return whether Slurm starts a job again that it ends now, and the reason as text."""
    _, output, _ = call("scontrol", "--oneliner", "show", "job", job)
    facts = dict(word.split("=", 1) for word in output.split() if "=" in word)
    before = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if int(facts.get("Restarts", 0)) > before:
        return True, f"Slurm has put job {job} back into its queue"
    why = "at its time limit" if facts.get("Reason") == "TimeLimit" else "as cancelled (scancel)"
    return False, f"Slurm ended job {job} {why}"


def _last(errors: str) -> str:
    """Return the last line of a command's errors without its program's name."""
    lines = errors.strip().splitlines() or [""]
    return re.sub(r"^\w+: (error: )?", "", lines[-1])
