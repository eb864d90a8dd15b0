"""The memory of a node's GPUs and of the computer, as far as ranks can use it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_NVIDIA_SMI = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
# Says whether torch was built for CUDA, without loading it: that takes seconds.
_CUDA = """
import importlib.util, pathlib, runpy
place = importlib.util.find_spec("torch").origin
print(runpy.run_path(str(pathlib.Path(place).with_name("version.py")))["cuda"])
"""

Output = Callable[[list[str]], str]


def look(python: str, output: Output, meminfo: Path = Path("/proc/meminfo")) -> dict[str, Any]:
    """Return `gpus`, `free_mib` and `cuda` of this node.

    `output` runs a command and returns what it says, nothing if it fails, and raises `OSError`
    where there is no such command.
    """
    gpus = [_gpu(line) for line in _said(output, _NVIDIA_SMI).splitlines() if line.count(",") == 1]
    built_for = _said(output, [python, "-c", _CUDA]).strip()
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    return {
        "gpus": gpus,
        "free_mib": int(lines["MemAvailable"].split()[0]) >> 10,
        "cuda": bool(gpus) and built_for != "None",
    }


def _said(output: Output, command: list[str]) -> str:
    """Return what a command says, nothing where it is not there."""
    with suppress(OSError):
        return output(command)
    return ""


def _gpu(line: str) -> dict[str, Any]:
    """Return one GPU; the driver says `[N/A]` of memory that is shared with the processor."""
    name, memory = (field.strip() for field in line.split(","))
    return {"name": name, "memory_mib": int(memory) if memory.isdecimal() else None}
