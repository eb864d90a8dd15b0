"""Memory of a node's GPUs and the host memory available to ranks, and GPUs that do not answer."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.nvidia import NVIDIA, room_mib
from ansible.module_utils.hearth_node.base import output
from ansible.module_utils.hearth_node.driver.inspect import cards, nvidia_smi, prime_off

# Prints torch's CUDA version without importing torch, which takes seconds.
_CUDA = """
import importlib.util, pathlib, runpy
place = importlib.util.find_spec("torch").origin
print(runpy.run_path(str(pathlib.Path(place).with_name("version.py")))["cuda"])
"""


_QUERY = "--query-gpu=name,memory.total,memory.reserved,memory.used"


def look(python: str, root: str = "/", used: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return `gpus`, `free_mib`, `total_mib` and `cuda` of this node; `python` is that of its runs.

    `used` tells who uses each of the GPUs (see `gpu_use.look`): the memory that Hearth's own runs
    hold counts as free, and the `programs` of others can be ended.

    Also the NVIDIA `cards` on its bus by PCI id (none that a virtual machine holds), whether
    `prime-select intel` has them off (`prime_off`), and why the driver lists no GPU (`trouble`).
    """
    said, trouble = nvidia_smi(_QUERY, "--format=csv,noheader,nounits")
    lines = [line for line in said.splitlines() if line.count(",") == 3]
    gpus = [
        _gpu(line, use)
        for line, use in itertools.zip_longest(lines, used[: len(lines)], fillvalue={})
    ]
    memory = host_memory((Path(root) / "proc/meminfo").read_text())
    return {
        "gpus": gpus,
        "free_mib": memory["total_mib"] - memory["used_mib"],
        "total_mib": memory["total_mib"],
        "cuda": bool(gpus) and output(python, "-c", _CUDA).strip() != "None",
        "cards": [
            found["device"]
            for found in cards(root)
            if found["vendor"] == NVIDIA and found["driver"] != "vfio-pci"
        ],
        "prime_off": prime_off(root),
        "trouble": trouble,
    }


def host_memory(meminfo: str) -> dict[str, int]:
    """Return memory in MiB, from /proc/meminfo; reclaimable memory counts as unused."""
    lines = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    total, free = (int(lines[name].split()[0]) >> 10 for name in ("MemTotal", "MemAvailable"))
    return {"used_mib": total - free, "total_mib": total}


def _gpu(line: str, use: Mapping[str, Any]) -> dict[str, Any]:
    """Return one GPU; the driver reports `[N/A]` for memory shared with the CPU."""
    name, *figures = (field.strip() for field in line.split(","))
    total, reserved, used = (int(each) if each.isdecimal() else None for each in figures)
    room = None if total is None else room_mib(total, reserved, used, use.get("ours_mib", 0))
    programs = [[each["name"], each["mib"]] for each in use.get("programs", ()) if each["mib"]]
    return {"name": name, "memory_mib": total, "room_mib": room, "programs": programs}
