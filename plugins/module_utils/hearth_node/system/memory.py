"""Memory of a node's GPUs and the host memory available to ranks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

_NVIDIA_SMI = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
# Prints torch's CUDA version without importing torch, which takes seconds.
_CUDA = """
import importlib.util, pathlib, runpy
place = importlib.util.find_spec("torch").origin
print(runpy.run_path(str(pathlib.Path(place).with_name("version.py")))["cuda"])
"""
_SECONDS = 30
"""Timeout, after which a driver that does not answer counts as missing."""


def look(python: str, meminfo: Path = Path("/proc/meminfo")) -> dict[str, Any]:
    """Return `gpus`, `free_mib` and `cuda` of this node; `python` is its environment's Python."""
    gpus = [_gpu(line) for line in _said(_NVIDIA_SMI).splitlines() if line.count(",") == 1]
    built_for = _said([python, "-c", _CUDA]).strip()
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return {
        "gpus": gpus,
        "free_mib": int(lines["MemAvailable"].split()[0]) >> 10,
        "cuda": bool(gpus) and built_for != "None",
    }


def _said(command: list[str]) -> str:
    """Return a command's output; '' if it is missing, fails or times out."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _gpu(line: str) -> dict[str, Any]:
    """Return one GPU; the driver reports `[N/A]` for memory shared with the CPU."""
    name, memory = (field.strip() for field in line.split(","))
    return {"name": name, "memory_mib": int(memory) if memory.isdecimal() else None}
