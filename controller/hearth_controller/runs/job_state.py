"""A run's job in Slurm's queue: whether the run waits there, and how it ended there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.slurm import ENDED, UNKNOWN

_DRAINED = (
    "a node is drained, down or reserved; `sinfo -R` says why, and "
    "`scontrol update nodename=NODE state=resume` brings it back"
)
_REASONS = {
    "ReqNodeNotAvail": _DRAINED,
    "Nodes required": _DRAINED,
    "Resources": "its nodes are at work",
    "Priority": "other jobs come first",
    "BeginTime": "Slurm begins it in a few minutes, as after each requeue",
    "JobHeldUser": "it is held; `scontrol release JOB` lets it begin",
    "JobHeldAdmin": "an administrator holds it",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionConfig": "the partition gives a job fewer nodes, or not those that it names",
    "PartitionNodeLimit": "the partition gives a job fewer nodes",
    "PartitionTimeLimit": "the partition gives a job less time; stop it, and give -e time_limit=",
    "Dependency": "it waits for another job",
    "Assoc": "your account's limit is reached",
    "QOS": "the limit of its quality of service is reached",
}
"""Slurm's reasons in words, by how they begin."""

_STOPPED = frozenset(("CANCELLED", "TIMEOUT", "PREEMPTED", "DEADLINE"))


def settled(record: Mapping[str, Any], queue: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the record of a run without a supervisor, with the state that Slurm gives the run.

    `record` is an open one of a run under Slurm, `queue` its newest job. It is `queued`, `stopped`
    or `failed` with the reason as its cause, or unchanged where Slurm knows nothing of that.
    """
    if not (found := _state(record, queue)):
        return record
    state, why = found
    kind = "not_ready" if state == "failed" else "stopped"
    cause = {"node": record["node"], "rank": None, "kind": kind, "message": why}
    return {**record, "state": state, "cause": cause, "job": queue["job"] or record["job"]}


def _state(record: Mapping[str, Any], queue: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the state of a run without a supervisor and the reason; None if it is just gone."""
    state, waits = queue["state"], record["state"] == "queued"
    job = f"job {queue['job'] or record['job']}".strip()
    if state == UNKNOWN:
        return "queued", f"{job}: Slurm does not say whether it waits: {queue['reason']}"
    if state == "RUNNING":
        return ("queued", f"{job} begins") if waits else None
    if state not in ENDED:
        return "queued", f"{job} waits in Slurm's queue: {_reason(queue)}"
    if state in _STOPPED or (waits and not state):
        how = state.lower() or "cancelled"
        return "stopped", f"{job} was {how} in Slurm's queue" if waits else f"{job} was {how}"
    if state in ("", "COMPLETED") and not waits:
        return None
    return "failed", f"{job} is {state} in Slurm; see results/{record['run']}/job.log"


def _reason(queue: Mapping[str, str]) -> str:
    """Return Slurm's reason for a job that waits, with its meaning."""
    reason = queue["reason"]
    if reason == "None":
        return f"it is {queue['state']}"
    meaning = next((words for head, words in _REASONS.items() if reason.startswith(head)), "")
    return f"{reason} ({meaning.replace('JOB', queue['job'])})" if meaning else reason
