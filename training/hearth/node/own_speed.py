"""The speed of this rank: cached from an earlier run, or measured now."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from hearth.base.errors import HearthError
from hearth.base.places import python_path
from hearth.config import Run, Settings, run_text
from hearth.config.layout import Layout
from hearth.diagnose.catalogue import diagnosis, explained
from hearth.diagnose.log import killed_by, last_error
from hearth.model import precision
from hearth.model.load import backend_here
from hearth.node import kept
from hearth.node.limit_cost import costs
from hearth.node.prepare import Prepared, inputs_of
from hearth.node.probe import Measured
from hearth.plan.speed import UNKNOWN
from hearth.ranks.world import own_device

_CODE = Path(__file__).resolve().parents[2]
_UNMEASURED = Measured(UNKNOWN, row_tokens=0, exchange_bytes=0, saturated=True)


def most_rows(settings: Settings) -> int:
    """Return the largest micro-batch that this run could use."""
    wanted, rows = settings.micro_batch, settings.at_most().global_batch
    return rows if wanted == "auto" else min(wanted, rows)


def case_of(
    run: Run, prepared: Prepared, environment: Mapping[str, str] = os.environ
) -> dict[str, object]:
    """Return the case of this rank in `run`: everything that its speed depends on.

    The precision is the one that this rank would choose alone.
    """
    device, settings = own_device(environment), run.settings
    chosen = precision.choose(settings.precision, [("here", precision.supported(device))])
    backend = backend_here(settings, device)
    return kept.case(settings, inputs_of(prepared), device, backend, chosen, environment)


def kept_here(
    run: Run, layout: Layout, prepared: Prepared, environment: Mapping[str, str] = os.environ
) -> Measured | None:
    """Return the speed of this rank for the rows of `run` from an earlier run, None without one.

    A run that wants no speeds has an unknown one.
    """
    if not run.settings.wants_speeds:
        return _UNMEASURED
    return kept.read(layout.speeds, case_of(run, prepared, environment), most_rows(run.settings))


def power_here(
    run: Run,
    layout: Layout,
    prepared: Prepared,
    device: torch.device,
    environment: Mapping[str, str] = os.environ,
) -> dict[str, Any]:
    """Return the `limit` and the `default` limit in watts on this rank's GPU, {} without any.

    Where measurements under both are cached: the part of the speed that the limit costs (`slower`)
    and the day of the later one (`measured`).
    """
    limits = kept.power_limits(device)
    if limits is None:
        return {}
    case = case_of(run, prepared, environment)
    cost = next((each for each in costs(layout.speeds) if each.case == case), None)
    return {
        "limit": limits.now,
        "default": limits.default,
        "slower": cost and cost.slower,
        "measured": cost and cost.measured,
    }


def measured_here(
    run: Run,
    layout: Layout,
    prepared: Prepared,
    say: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> Measured:
    """Return the speed at which this rank computes the rows of `run`, measured now if need be.

    It is measured in a separate process: otherwise the probe's fragmented memory and the compiled
    kernels of Unsloth's backward pass would stay with the training.

    Raises `HearthError` if not even one row fits into the memory.
    """
    if found := kept_here(run, layout, prepared, environment):
        return found
    case, most = case_of(run, prepared, environment), most_rows(run.settings)
    say("measuring how fast this rank computes, once for this model and data")
    measure_aside("measure", run, environment)
    if found := kept.read(layout.speeds, case, most):
        return found
    raise HearthError(f"{layout.speeds} does not keep what is written there; make it writable")


def measure_aside(
    verb: str, run: Run, environment: Mapping[str, str], spec: Mapping[str, Any] | None = None
) -> None:
    """Run a verb of `hearth.node` for `run` in a process of its own.

    Raises `HearthError` with its findings, or with the error that ended it.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(spec or {}, file)
        file.flush()
        command = [sys.executable, "-m", "hearth.node", verb, "--spec", file.name]
        done = subprocess.run(
            [*command, "--run-file", "/dev/stdin"],
            env={**environment, "PYTHONPATH": python_path(_CODE, environment)},
            input=run_text(run),
            capture_output=True,
            text=True,
        )
    try:
        findings = json.loads(done.stdout.splitlines()[-1])["findings"]
    except (IndexError, ValueError, KeyError, TypeError):
        findings = [f"the speed of this rank could not be measured: {_crash(done)}"]
    if findings:
        raise HearthError(*findings)


def _crash(done: subprocess.CompletedProcess[str]) -> str:
    """Return the error that ended the measuring process, with its cause and cure, on one line."""
    if done.returncode < 0:
        # The probe tries larger micro-batches than a run may need.
        without = "set split=equal and micro_batch=1 to train without measuring"
        return f"the process was {killed_by(-done.returncode)}; {without}"
    error = last_error(done.stderr)
    if error is None:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"the process ended with status {done.returncode}: {last}"
    cure = [] if error.has_cure else explained(diagnosis(error.message))
    return "; ".join([" ".join(error.message.split()), *cure])
