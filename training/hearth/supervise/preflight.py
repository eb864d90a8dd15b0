"""Checks on a node before a run may start there."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from typing import Any

from hearth.base.errors import LaunchError
from hearth.supervise.interface import free_port, interface_of
from hearth.supervise.record import held_by, lock_holder
from hearth.supervise.spec import Spec


def check(spec: Spec) -> dict[str, Any]:
    """Return `ok`, all `findings` (each starts with the node's name) and the `facts`.

    Facts: `interface` that carries the cluster address, the `port` at which this node could run the
    rendezvous (on rank 0 the one in the spec, if it gives one), and the next `generation` of the
    run as far as this node knows. Nothing is changed.
    """
    findings: list[str] = []
    facts: dict[str, Any] = {"generation": _generations(spec)}
    try:
        facts["interface"] = interface_of(spec.address)
    except LaunchError as error:
        findings += error.findings
    else:
        wanted = spec.meeting.port if spec.rank == 0 else 0
        try:
            facts["port"] = free_port(spec.address, wanted)
        except LaunchError as error:
            findings += error.findings
    holder = lock_holder(spec.workspace)
    if holder and holder["run"] != spec.run:
        findings.append(held_by(spec.workspace, holder))
    elif holder:
        findings.append(
            f"{spec.workspace}: run '{spec.run}' is under way here already: watch it, or stop it"
        )
    if shutil.which(spec.python) is None:
        findings.append(f"{spec.python} cannot be run: provision this node first")
    if reason := _not_writable(spec):
        findings.append(reason)
    return {
        "ok": not findings,
        "findings": [f"{spec.node}: {finding}" for finding in findings],
        "facts": facts,
    }


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


def _generations(spec: Spec) -> int:
    """Return the next generation: one more than the last launch on record here, or 0."""
    try:
        return int(json.loads(spec.record.read_text())["generation"]) + 1
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _not_writable(spec: Spec) -> str | None:
    """Return the reason the workspace is not writable, by writing (root's mode bits mislead)."""
    folder = spec.workspace
    while not folder.exists():
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"{spec.workspace} cannot be written: {error.strerror}"
