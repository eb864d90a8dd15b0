"""Inspect this node before a run: address, port, other runs, copies of model and data.

Imports no torch: the answer takes a second, and everything wrong is found before anything is
fetched.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hearth.base.errors import HearthError
from hearth.base.interface import card
from hearth.base.systemd import lockable_bytes
from hearth.config import Run, read_run
from hearth.config.layout import Layout
from hearth.config.presets import known_shape
from hearth.config.shape import Shape
from hearth.lend.first import away_now
from hearth.node.listener import start
from hearth.node.outcome import outcome_file, read_outcome
from hearth.supervisor.job import check as check_job
from hearth.supervisor.preflight import check
from hearth.transfer import own_copies

LEAST_FREE_BYTES = 1 << 30
"""Enough for the checkpoints, metrics and adapter of a LoRA run, with a wide margin."""

_CREATED = re.compile(r"^created: ['\"]?([^'\"\n]+)", re.MULTILINE)

IDLE = 60.0
"""Seconds without a request after which the listener for the other nodes' link tests exits."""


def inspect_node(run_file: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `findings` and `facts` of this node for the run in `run_file`.

    `wanted` has the cluster `address` of this node and names the parts to inspect:
        run: the name of the run: can it start here? `port` is the one that rank 0 must use, 0 any;
            with `queue` it is to wait for its turn. Does its card do `rdma`, and how much memory
            may a run lock for that (`lockable`)?
        copies: the model and data that are here; `shared` is the folder that all nodes share or "".
        shape: the sizes of the model, as far as they are known `here`, or with `hub` also there.
        slurm: with Slurm's `nodes` and the job's `options`, whether Slurm takes such a job.
        lends: whether the run heeds the node's terms of lending, which are in `lend`: is the node
            `away` now, and why?
        kept: with `nproc` and `gpus`, the outcome of an earlier preparation (`prepared`); then this
            node also answers the addresses `allowed` in their link tests.
    """
    workspace = Path(os.environ["HEARTH_WORKSPACE"])
    facts: dict[str, Any] = {}
    findings: list[str] = []
    if name := wanted.get("run"):
        queue = bool(wanted.get("queue"))
        answer = check(workspace, name, wanted["address"], wanted["port"], queue)
        facts |= answer["facts"]
        findings += answer["findings"]
        if interface := facts.get("interface"):
            facts |= {"rdma": card(interface, Path("/sys"))["rdma"], "lockable": lockable_bytes()}
        results = workspace / "results" / name
        findings += another_run(results, created_in(run_file), in_workspace=True)
        findings += _folders(workspace, name)
    if slurm := wanted.get("slurm"):
        answer = check_job(**slurm)
        facts["slurm_gpus"] = answer["gpus"]
        findings += answer["findings"]
    if wanted.get("copies"):
        layout = Layout.from_environment()
        answer = own_copies.inspect_copies(
            read_run(run_file), layout, wanted["address"], wanted.get("shared", "")
        )
        facts |= {"copies": answer["facts"], "shared": answer["facts"].get("shared")}
        findings += answer["findings"]
    if where := wanted.get("shape"):
        try:
            shape = _shape(read_run(run_file), Layout.from_environment(), where == "hub")
            facts["shape"] = asdict(shape) if shape else {}
        except HearthError as error:
            findings += error.findings
    if wanted.get("lends"):
        facts["away"], wrong = away_now(wanted["lend"], workspace)
        findings += wrong
    if wanted.get("kept") and not findings:
        run, layout = read_run(run_file), Layout.from_environment()
        if kept := read_outcome(outcome_file(run, layout, wanted["nproc"], wanted["gpus"])):
            facts["prepared"] = kept | ({} if facts.get("away") else answering(wanted))
    return {"facts": facts, "findings": list(dict.fromkeys(findings))}


def _shape(run: Run, layout: Layout, hub: bool) -> Shape | None:
    """Return the sizes of the model of `run`; None if they are not known here, nor on the `hub`.

    Raises `ModelError` if the model on the Hub needs code that is not allowed to run.
    """
    if not hub:
        return known_shape(run.settings.model, run.source, layout.models)
    from hearth.fit.published import shape_beforehand  # with the Hub's library: 0.3 s

    return shape_beforehand(run, layout)


def answering(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `port` where this node now answers the link tests of the others, if any."""
    if not wanted["measure"] or len(wanted["allowed"]) < 2:
        return {}
    return {"port": start(wanted["address"], wanted["allowed"], IDLE)}


def _folders(workspace: Path, run: str) -> list[str]:
    """Return findings about the folders that a run writes to."""
    findings = []
    for folder in ("results", "checkpoints"):
        try:
            check_folder(workspace / folder / run)
        except HearthError as error:
            findings += error.findings
    return findings


def check_folder(folder: Path, least_free: int = LEAST_FREE_BYTES) -> None:
    """Raise if `folder` cannot be created or written, or has too little space.

    The test writes to the nearest existing parent, so that a refused run leaves nothing behind. (It
    really writes, since even root cannot write everywhere.)
    """
    there = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise HearthError(
            f"{folder} cannot be written ({error.strerror}); give this user the right to, or "
            "choose another folder"
        ) from error
    free = shutil.disk_usage(there).free
    if free < least_free:
        raise HearthError(
            f"{folder} has {free >> 20} MiB left on its disk; a run needs {least_free >> 20} MiB"
        )


def created_in(run_file: Path) -> str:
    """Return the creation time in a run file, '' if it is not known.

    The file may be that of a person's script, which `read_run` does not know.
    """
    try:
        found = _CREATED.search(run_file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return found[1] if found else ""


def another_run(folder: Path, created: str, in_workspace: bool) -> list[str]:
    """Return a finding if `folder` holds a run made at another time than `created`.

    Results, checkpoints and code of the two would mix. A run whose run file is damaged is another.
    """
    there = folder / "run.yml"
    made = created_in(there)
    if not there.exists() or not created or made == created:
        return []
    remove = (
        f"remove it with `hearth runs --delete {folder.name}`"
        if in_workspace
        else "delete that folder and its checkpoints"
    )
    return [
        f"run: another run '{folder.name}' exists in {folder}, made "
        f"{made or 'at an unknown time'}; choose another name, or {remove}"
    ]
