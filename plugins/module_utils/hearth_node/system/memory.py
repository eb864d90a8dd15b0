"""Memory of a node's GPUs and the host memory available to ranks, and GPUs that do not answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.hearth.base.commands import output
from ansible.module_utils.hearth.base.nvidia import NVIDIA
from ansible.module_utils.hearth_node.driver import gpu_use
from ansible.module_utils.hearth_node.driver.inspect import cards, prime_off

# Prints torch's CUDA version without importing torch, which takes seconds.
_CUDA = """
import importlib.util, pathlib, runpy
place = importlib.util.find_spec("torch").origin
print(runpy.run_path(str(pathlib.Path(place).with_name("version.py")))["cuda"])
"""


def inspect_memory(
    python: str, root: str = "/", used: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return `gpus`, `free_mib`, `total_mib` and `cuda` of this node; `python` is that of its runs.

    `used` are the GPUs as `use_of_gpus` returns them, which is called without any: the memory that
    Hearth's own runs hold counts as free, and the `programs` of others can be ended.

    Also the NVIDIA `cards` on its bus by PCI id (none that a virtual machine holds), whether
    `prime-select intel` has them off (`prime_off`), and why the driver lists no GPU (`trouble`).
    """
    trouble = ""
    if not used:
        used, trouble = gpu_use.use_of_gpus(())
    gpus = [_gpu(each) for each in used]
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


def _gpu(use: Mapping[str, Any]) -> dict[str, Any]:
    """Return one GPU; its memory is None if it shares the CPU's."""
    programs = [[each["name"], each["mib"]] for each in use["programs"] if each["mib"]]
    memory = {"memory_mib": use["total_mib"], "room_mib": use["room_mib"]}
    return {"name": use["name"], **memory, "programs": programs}
