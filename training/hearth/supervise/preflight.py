"""Checks on a node before a run may start there."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hearth.base.errors import LaunchError
from hearth.base.files import read_object
from hearth.base.slurm import ENDED, queued
from hearth.supervise.cause import ENDS
from hearth.supervise.interface import free_port, interface_of
from hearth.supervise.record import held_by, lock_holder
from hearth.supervise.spec import Spec, record_file


def check(workspace: Path, run: str, address: str, port: int) -> dict[str, Any]:
    """Return the `findings` against starting `run` on this node, and the `facts`.

    Facts: `interface` that carries the cluster `address`, a free `port` for the rendezvous (`port`
    itself unless that is 0), and the next `generation` of the run as far as this node knows.
    Nothing is changed.
    """
    findings: list[str] = []
    last = read_object(record_file(workspace, run)) or {}
    facts: dict[str, Any] = {"generation": int(last.get("generation", -1)) + 1}
    try:
        facts["interface"] = interface_of(address)
        facts["port"] = free_port(address, port)
    except LaunchError as error:
        findings += error.findings
    holder = lock_holder(workspace)
    if holder and holder["run"] != run:
        findings.append(held_by(workspace, holder))
    elif holder:
        findings.append(f"{workspace}: run '{run}' is under way here already: watch it, or stop it")
    elif last.get("job") is not None and last["state"] not in ENDS:
        found = queued(run)
        if found["state"] not in ENDED:
            job = found["job"] or last["job"]
            findings.append(f"{workspace}: job {job} of run '{run}' is in Slurm's queue: stop it")
    return {"findings": findings, "facts": facts}


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
    if spec.meeting.port == 0:
        findings.append(f"{spec.node}: no meeting port was chosen: `check` on rank 0 reports one")
    if findings:
        raise LaunchError(*findings)
    return dataclasses.replace(spec, interface=interface)
