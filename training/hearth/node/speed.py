"""The speed of this rank, and of a model's layers on it: from an earlier run, or measured now.

Measurements are cached in a folder of the node, one small JSON file per case: everything that the
speed depends on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError

from hearth.base.errors import HearthError
from hearth.base.files import read_object, write_whole
from hearth.base.nvml import Cards, PowerLimits
from hearth.base.places import python_path
from hearth.config import Run, Settings, run_text
from hearth.config.layout import Layout
from hearth.config.settings import TIMED
from hearth.diagnose.catalogue import ended_by
from hearth.model import precision
from hearth.model.load import backend_here
from hearth.node.layer_probe import MeasuredLayers
from hearth.node.limit_cost import WATTS, costs
from hearth.node.prepare import Prepared, inputs_of
from hearth.node.probe import Measured
from hearth.plan.speed import UNKNOWN, Speed
from hearth.ranks.world import own_device

_CODE = Path(__file__).resolve().parents[2]
_UNMEASURED = Measured(UNKNOWN, row_tokens=0, exchange_bytes=0, saturated=True)
_Found = TypeVar("_Found")


def most_rows(settings: Settings) -> int:
    """Return the largest micro-batch that this run could use."""
    wanted, rows = settings.micro_batch, settings.at_most().global_batch
    return rows if wanted == "auto" else min(wanted, rows)


def case_of(
    run: Run, prepared: Prepared, environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the case of this rank in `run`.

    The precision is the one that this rank would choose alone.
    """
    device = own_device(environment)
    backend = backend_here(run.settings, device)
    return _case(run.settings, inputs_of(prepared), device, backend, environment)


def case_of_layers(
    run: Run, config: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the case of this rank and the layers of a model with this config.json."""
    text = json.dumps(config, sort_keys=True).encode()
    model = {"layers": hashlib.sha256(text).hexdigest()[:16]}
    device = own_device(environment)
    return _case(run.settings.at_most(), model, device, "transformers", environment)


def _case(
    settings: Settings,
    inputs: Mapping[str, str],
    device: torch.device,
    backend: str,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return the case of a rank; `inputs` name its model and data.

    Its limit in watts is left out if it is the default one, as in measurements from before limits
    were looked at.
    """
    known = settings.model_dump(mode="json")
    limits = power_limits(device)
    limited = limits is not None and limits.now != limits.default
    return {
        "machine": _machine(),
        "processor": _processor(device),
        "threads_here": environment.get("OMP_NUM_THREADS", ""),
        "ranks_here": int(environment.get("LOCAL_WORLD_SIZE", "1")),
        "local_rank": int(environment.get("LOCAL_RANK", "0")),
        "torch": torch.__version__,
        "backend": backend,
        "precision": precision.choose(settings.precision, [("here", precision.supported(device))]),
        "rounds": settings.sync_every > 1,
        **inputs,
        **{name: known[name] for name in TIMED},
        **({WATTS: limits.now} if limited else {}),
    }


def power_limits(device: torch.device) -> PowerLimits | None:
    """Return the limits on the power of a rank's GPU; None on a CPU, or if the driver has none."""
    cards = Cards.open() if device.type == "cuda" else None
    if cards is None:
        return None
    try:
        own = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        return cards.power_limits(cards.uuids.index(own)) if own in cards.uuids else None
    finally:
        cards.close()


def _machine() -> str:
    """Return an identity of this machine that is unique even if two share a home folder."""
    with suppress(OSError):
        return Path("/etc/machine-id").read_text(encoding="ascii").strip()
    return platform.node()


def _processor(device: torch.device) -> str:
    """Return the processor's identity: the GPU's name and UUID, or the CPU's model name."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return f"{properties.name} {properties.uuid}"
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return platform.machine()


# -- the cache -------------------------------------------------------------------------------------


def _path(folder: Path, case: Mapping[str, Any]) -> Path:
    """Return the file of a case."""
    text = json.dumps(case, sort_keys=True).encode()
    return folder / f"{hashlib.sha256(text).hexdigest()[:20]}.json"


def _read(folder: Path, case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content that `_keep` wrote for this case, {} without any."""
    content = read_object(_path(folder, case)) or {}
    return {name: each for name, each in content.items() if name != "case"}


def _keep(folder: Path, case: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Cache the content of this case."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(_path(folder, case), json.dumps({**content, "case": dict(case)}, indent=1) + "\n")


def read_speed(folder: Path, case: Mapping[str, Any], most: int) -> Measured | None:
    """Return the measurement of this case if it covers micro-batches of up to `most` rows."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        found = _read(folder, case)
        speed = Speed(tuple(found.pop("sizes")), tuple(found.pop("seconds")))
        measured = Measured(speed, **found)
        if measured.saturated or 2 * speed.sizes[-1] > most:
            return measured
    return None


def keep_speed(folder: Path, case: Mapping[str, Any], measured: Measured) -> None:
    """Cache the measurement of this case."""
    content = dataclasses.asdict(measured)
    _keep(folder, case, content.pop("speed") | content)


def keep_layers(folder: Path, case: Mapping[str, Any], measured: MeasuredLayers) -> None:
    """Cache the measurement of a model's layers."""
    _keep(folder, case, dataclasses.asdict(measured))


# -- this rank -------------------------------------------------------------------------------------


def kept_here(
    run: Run, layout: Layout, prepared: Prepared, environment: Mapping[str, str] = os.environ
) -> Measured | None:
    """Return the speed of this rank for the rows of `run` from an earlier run, None without one.

    A run that wants no speeds has an unknown one.
    """
    if not run.settings.wants_speeds:
        return _UNMEASURED
    return read_speed(layout.speeds, case_of(run, prepared, environment), most_rows(run.settings))


def measured_here(
    run: Run,
    layout: Layout,
    prepared: Prepared,
    say: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> Measured:
    """Return this rank's speed with the rows of `run`, measured now if need be.

    Raises `HearthError` if not even one row fits into the memory.
    """
    return _found_or_measured(
        lambda: kept_here(run, layout, prepared, environment),
        lambda: measure_aside("measure", run, environment),
        lambda: say("measuring how fast this rank computes, once for this model and data"),
        layout,
    )


def kept_layers(
    run: Run,
    layout: Layout,
    config: Mapping[str, Any],
    environment: Mapping[str, str] = os.environ,
) -> MeasuredLayers | None:
    """Return the measurement from an earlier run, None without one that has all sizes."""
    content = _read(layout.speeds, case_of_layers(run, config, environment))
    try:
        found = TypeAdapter(MeasuredLayers).validate_python(content)
    except ValidationError:
        return None
    complete = found.saturated or 2 * found.speed.layer.sizes[-1] > most_rows(run.settings)
    return found if complete else None


def layers_here(
    run: Run,
    layout: Layout,
    config: Mapping[str, Any],
    say: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> MeasuredLayers:
    """Return this rank's speed with parts of the model, measured now if need be.

    Raises `HearthError` if the model cannot be divided, or not even one row fits into the memory.
    """
    return _found_or_measured(
        lambda: kept_layers(run, layout, config, environment),
        lambda: measure_aside("measure-layers", run, environment, {"config": config}),
        lambda: say("measuring how fast this rank computes a layer, once for this model"),
        layout,
    )


def power_here(
    run: Run, layout: Layout, prepared: Prepared, device: torch.device
) -> dict[str, Any]:
    """Return the `limit` and the `default` limit in watts on this rank's GPU, {} without any.

    Where measurements under both are cached: the part of the speed that the limit costs (`slower`)
    and the day of the later one (`measured`).
    """
    limits = power_limits(device)
    if limits is None:
        return {}
    case = case_of(run, prepared)
    cost = next((each for each in costs(layout.speeds) if each.case == case), None)
    return {
        "limit": limits.now,
        "default": limits.default,
        "slower": cost and cost.slower,
        "measured": cost and cost.measured,
    }


def _found_or_measured(
    find: Callable[[], _Found | None],
    measure: Callable[[], None],
    announce: Callable[[], None],
    layout: Layout,
) -> _Found:
    """Return the cached measurement, after measuring if there is none yet."""
    if found := find():
        return found
    announce()
    measure()
    if found := find():
        return found
    raise HearthError(f"{layout.speeds} does not keep what is written there; make it writable")


def measure_aside(
    verb: str, run: Run, environment: Mapping[str, str], spec: Mapping[str, Any] | None = None
) -> None:
    """Run a verb of `hearth.node` that measures, for `run`, in a process of its own.

    Otherwise the probe's fragmented memory and the compiled kernels of Unsloth's backward pass
    would stay with the training.

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
    error, cure = ended_by(done.returncode, done.stderr)
    if done.returncode < 0:
        # The probe tries larger micro-batches than a run may need.
        cure = ["set split=equal and micro_batch=1 to train without measuring"]
    return "; ".join([error, *cure])
