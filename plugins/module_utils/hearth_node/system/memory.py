"""Memory of a node's GPUs and the host memory available to ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.module_utils.hearth_node.base import output
from ansible.module_utils.hearth_node.driver.inspect import nvidia_smi

# Prints torch's CUDA version without importing torch, which takes seconds.
_CUDA = """
import importlib.util, pathlib, runpy
place = importlib.util.find_spec("torch").origin
print(runpy.run_path(str(pathlib.Path(place).with_name("version.py")))["cuda"])
"""


def look(python: str, meminfo: Path = Path("/proc/meminfo")) -> dict[str, Any]:
    """Return `gpus`, `free_mib` and `cuda` of this node; `python` is its environment's Python."""
    said, _ = nvidia_smi("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
    gpus = [_gpu(line) for line in said.splitlines() if line.count(",") == 1]
    memory = host_memory(meminfo.read_text())
    return {
        "gpus": gpus,
        "free_mib": memory["total_mib"] - memory["used_mib"],
        "cuda": bool(gpus) and output(python, "-c", _CUDA).strip() != "None",
    }


def host_memory(meminfo: str) -> dict[str, int]:
    """Return memory in MiB, from /proc/meminfo; reclaimable memory counts as unused."""
    lines = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    total, free = (int(lines[name].split()[0]) >> 10 for name in ("MemTotal", "MemAvailable"))
    return {"used_mib": total - free, "total_mib": total}


def _gpu(line: str) -> dict[str, Any]:
    """Return one GPU; the driver reports `[N/A]` for memory shared with the CPU."""
    name, memory = (field.strip() for field in line.split(","))
    return {"name": name, "memory_mib": int(memory) if memory.isdecimal() else None}
