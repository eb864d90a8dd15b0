"""Whether Unsloth trains in 4 bits on this machine's GPU, tried in a process that may crash."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hearth.base.nvidia import unsupported_gpus
from hearth.base.places import python_path
from hearth.diagnose.catalogue import diagnosis, explained
from hearth.diagnose.log import killed_by, last_error

LIMIT = 600.0
"""Seconds for the whole attempt: the first one on a machine compiles kernels."""

_CODE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class UnslothPass:
    """One step of Unsloth with a tiny model in 4 bits.

    Without an attempt `not_tried` says why. A failed one has the part that `failed` (import, load
    in 4 bits, adapter, forward and backward), its `error` and, where it is known, a `remedy`.
    """

    not_tried: str = ""
    failed: str = ""
    error: str = ""
    remedy: str = ""
    loss: float | None = None
    seconds: float | None = None


def run_unsloth(facts: Mapping[str, Any], limit: float = LIMIT) -> UnslothPass:
    """Try Unsloth if the machine of `facts` has a GPU for it; end it after `limit` seconds."""
    if facts["torch_error"] or not facts["devices"]:
        return UnslothPass(not_tried="there is no NVIDIA GPU that PyTorch can use")
    if unsupported_gpus(facts):
        return UnslothPass(not_tried="PyTorch has no code for a GPU here")
    found = importlib.util.find_spec("unsloth")
    if found is None or found.origin is None:  # a folder of that name is no package
        return UnslothPass(not_tried="Unsloth is not installed")
    return _tried(limit)


def _tried(limit: float) -> UnslothPass:
    """Run the probe and return how far it came."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = python_path(_CODE, os.environ)
        process = subprocess.Popen(
            [sys.executable, "-m", "hearth.node.unsloth_probe", folder],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        hung = ""
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # with the compilers that it has started
            output, errors = process.communicate()
            hung = f"it did not end within {limit:g} s"
    reports = [report for line in output.splitlines() if (report := _report(line))]
    parts = [report["part"] for report in reports if "part" in report]
    losses = [report["loss"] for report in reports if "loss" in report]
    if losses and not hung:  # a library may still fail while Python ends
        return UnslothPass(loss=losses[0], seconds=time.monotonic() - began)
    failed = parts[-1] if parts else "start"
    if hung:
        return UnslothPass(failed=failed, error=hung)
    error, remedy = _cause(process.returncode, errors)
    return UnslothPass(failed=failed, error=error, remedy=remedy)


def _report(line: str) -> dict[str, Any] | None:
    """Return the report of the probe in a line of its output; Unsloth prints there, too."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _cause(status: int, errors: str) -> tuple[str, str]:
    """Return the error that ended the probe, and its cure if it is known."""
    if status < 0:
        return f"the process was {killed_by(-status)}", ""
    error = last_error(errors)
    if error is None:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1]
        return f"the process ended with status {status}: {last}", ""
    return " ".join(error.message.split()), " ".join(explained(diagnosis(error.message)))
