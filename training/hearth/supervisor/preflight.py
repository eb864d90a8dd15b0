"""Checks on a node before a run may start there."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError
from hearth.base.interface import free_port, interface_of
from hearth.base.locks import is_in_queue
from hearth.base.slurm import ENDED, queued
from hearth.supervisor.cause import ENDS, generation_of
from hearth.supervisor.queue import QueueEntry, read_queue
from hearth.supervisor.record import held_by, lock_holder, record_in
from hearth.supervisor.spec import Spec, record_file


def check(
    workspace: Path, run: str, address: str, port: int, queue: bool = False
) -> dict[str, Any]:
    """Return the `findings` against starting `run` on this node, and the `facts`.

    Facts: `interface` that carries the cluster `address`, a free `port` for the rendezvous (`port`
    itself unless that is 0), the next `generation` of the run as far as this node knows, the other
    run that has the node (`busy`, '' without one), and the last position in its queue
    (`queue_end`, 0 without any). With `queue` the run is to wait for its turn, so that neither a
    busy node nor a port that is taken now is in its way. Nothing is changed.
    """
    findings: list[str] = []
    last = record_in(record_file(workspace, run))
    facts: dict[str, Any] = {"generation": generation_of(last) + 1}
    try:
        facts["interface"] = interface_of(address)
        facts["port"] = port if queue and port else free_port(address, port)
    except LaunchError as error:
        findings += error.findings
    entries = read_queue(workspace)
    facts["queue_end"] = max((entry.position for entry in entries), default=0.0)
    holder = lock_holder(workspace)
    facts["busy"] = holder["run"] if holder and holder["run"] != run else ""
    if is_in_queue(workspace, run):
        findings.append(
            f"{workspace}: run '{run}' waits in the queue here already: watch it, or remove it"
        )
    elif holder and holder["run"] != run:
        findings += [] if queue else [f"{held_by(workspace, holder)}, or add -e queue=on"]
    elif first := _due(entries, run) if not queue else "":
        findings.append(
            f"{workspace}: run '{first}' waits for its turn here: get behind it with "
            "-e queue=on, or remove it (`hearth runs --delete NAME`)"
        )
    elif holder:
        findings.append(f"{workspace}: run '{run}' is under way here already: watch it, or stop it")
    elif last.get("job") is not None and last["state"] not in ENDS:
        found = queued(run)
        if found["state"] not in ENDED:
            job = found["job"] or last["job"]
            findings.append(f"{workspace}: job {job} of run '{run}' is in Slurm's queue: stop it")
    return {"findings": findings, "facts": facts}


def _due(entries: Sequence[QueueEntry], run: str) -> str:
    """Return the first other run in a queue that may start now, '' without one."""
    due = (each.run for each in entries if each.alive and each.is_due(datetime.now(UTC)))
    return next((each for each in due if each != run), "")


def ready(spec: Spec) -> Spec:
    """Return the spec with its interface filled in, ready to be supervised.

    Raises:
        LaunchError: the address or the interface is not this machine's, or no port was chosen.
    """
    interface = interface_of(spec.address)
    findings = []
    if spec.interface not in ("", interface):
        findings.append(
            f"{spec.node}: 'interface' says {spec.interface}, but {interface} carries "
            f"{spec.address}: leave it out or correct it"
        )
    if not all(spec.ports):
        findings.append(f"{spec.node}: no port was chosen for each node: `check` reports one")
    if findings:
        raise LaunchError(*findings)
    return dataclasses.replace(spec, interface=interface)


def ready_again(spec: Spec) -> Spec:
    """Return the spec as `ready` does, but wait for an address that appears only after boot.

    Raises `LaunchError` if it did not appear within the time that the others wait.
    """
    until = time.monotonic() + spec.patience
    while True:
        try:
            return ready(spec)
        except LaunchError:
            if time.monotonic() > until:
                raise
        time.sleep(1.0)
