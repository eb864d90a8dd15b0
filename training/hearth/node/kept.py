"""Cache of this node's measurements: one small JSON file per case."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from hearth.base.files import read_object, write_whole
from hearth.base.nvml import Cards, PowerLimits
from hearth.config import Settings
from hearth.config.settings import TIMED
from hearth.node.limit_cost import WATTS
from hearth.node.probe import Measured
from hearth.plan.speed import Speed


def case(
    settings: Settings,
    facts: Mapping[str, str],
    device: torch.device,
    backend: str,
    precision: str,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """Return everything that this rank's speed depends on; `facts` name its model and data."""
    chosen = settings.model_dump(mode="json")
    return {
        "machine": _machine(),
        "processor": _processor(device),
        "threads_here": environment.get("OMP_NUM_THREADS", ""),
        "ranks_here": int(environment.get("LOCAL_WORLD_SIZE", "1")),
        "local_rank": int(environment.get("LOCAL_RANK", "0")),
        "torch": torch.__version__,
        "backend": backend,
        "precision": precision,
        "rounds": settings.sync_every > 1,
        **facts,
        **{name: chosen[name] for name in TIMED},
        **_limited(power_limits(device)),
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


def _limited(limits: PowerLimits | None) -> dict[str, float]:
    """Return the part of a case on its limit in watts.

    It is empty under the default limit, as in measurements from before limits were looked at.
    """
    return {} if limits is None or limits.now == limits.default else {WATTS: limits.now}


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
        name = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
        return name
    return platform.machine()


def _path(folder: Path, of: Mapping[str, Any]) -> Path:
    """Return the file of a case."""
    text = json.dumps(of, sort_keys=True).encode()
    return folder / f"{hashlib.sha256(text).hexdigest()[:20]}.json"


def found_in(folder: Path, of: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content that `keep` wrote for this case, None without any."""
    content = read_object(_path(folder, of))
    return content and {name: each for name, each in content.items() if name != "case"}


def keep(folder: Path, of: Mapping[str, Any], content: Mapping[str, Any]) -> None:
    """Cache the content of this case."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(_path(folder, of), json.dumps({**content, "case": dict(of)}, indent=1) + "\n")


def read(folder: Path, of: Mapping[str, Any], most: int) -> Measured | None:
    """Return the measurement of this case if it covers micro-batches of up to `most` rows."""
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        found = found_in(folder, of) or {}
        speed = Speed(tuple(found.pop("sizes")), tuple(found.pop("seconds")))
        measured = Measured(speed, **found)
        if measured.saturated or 2 * speed.sizes[-1] > most:
            return measured
    return None


def write(folder: Path, of: Mapping[str, Any], measured: Measured) -> None:
    """Cache the measurement of this case."""
    content = dataclasses.asdict(measured)
    keep(folder, of, content.pop("speed") | content)
