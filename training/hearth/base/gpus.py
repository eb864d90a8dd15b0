"""The NVIDIA GPUs that this machine's driver lists."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

NVIDIA_SMI = [
    "nvidia-smi",
    "--query-gpu=name,memory.total,driver_version,compute_cap",
    "--format=csv,noheader,nounits",
]
"""The command that lists the GPUs."""


UNIFIED_PART = 0.8
"""Fraction of a computer's free memory that all its ranks on a GPU that shares it may use. A full
memory freezes the machine, where another GPU raises an out-of-memory error."""

PYTHON = 420 << 20
"""Resident bytes after importing torch and the other libraries; in the computer's memory only."""

CUDA = 768 << 20
"""Bytes of CUDA's context and NCCL's buffers, which torch does not count."""


def room_mib(total: int, reserved: int | None, used: int | None, ours: int = 0) -> int:
    """Return the MiB of a card that a run can have, of its `total`.

    The driver has `reserved` some for itself. Of what is `used`, `ours` is Hearth's own and other
    programs hold the rest, such as a desktop. A figure that the driver does not tell is None.
    """
    return max(total - (reserved or 0) - max((used or 0) - ours, 0), 0)


def unified_share(free: float, ranks: int) -> float:
    """Return the bytes that each of `ranks` may use of a memory that a GPU shares, `free` now."""
    return UNIFIED_PART * free / ranks


def gpus() -> list[dict[str, Any]]:
    """Return every GPU that the driver knows, as `gpus_in` does."""
    return gpus_in(output(NVIDIA_SMI, seconds=30) or "")


def gpus_in(text: str) -> list[dict[str, Any]]:
    """Return `name`, `memory_mib`, `driver` and `capability` of the GPUs in `NVIDIA_SMI`'s output.

    The memory is None if the GPU shares the computer's: then the driver says `[N/A]`.
    """
    found = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4:
            name, memory, driver, capability = fields
            found.append(
                {
                    "name": name,
                    "memory_mib": int(memory) if memory.isdecimal() else None,
                    "driver": driver,
                    "capability": capability,
                }
            )
    return found


def output(command: list[str], seconds: float) -> str | None:
    """Return the output of a command, or None if it is missing or fails."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def supports(arch: Sequence[str], capability: str) -> bool:
    """Return whether a torch built for `arch` (`sm_86` …) runs on a GPU of a `capability` (`8.9`).

    Binary code runs on later minors of its major version, with a suffix `a` on its own version
    only. PTX (`compute_90`) is compiled for anything later. Source: CUDA C++ Programming Guide,
    "Compute Capability" and "Family-Specific Features".
    """
    major, minor = map(int, capability.split("."))
    for built in arch:
        if not (found := re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", built)):
            continue
        kind, variant, version = found[1], found[4], (int(found[2]), int(found[3]))
        later = version <= (major, minor)
        if variant == "a":
            fits = version == (major, minor)
        else:
            fits = later and (version[0] == major or (kind == "compute" and not variant))
        if fits:
            return True
    return False


def unsupported_gpus(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return a node's GPUs for which its torch has no code, as far as both are known."""
    return [
        gpu
        for gpu in facts["gpus"]
        if facts["arch"]
        and gpu["capability"][:1].isdecimal()
        and not supports(facts["arch"], gpu["capability"])
    ]


def short_gpu(gpus: Sequence[Mapping[str, Any]]) -> str:
    """Return the short names of a node's GPUs, such as `2× RTX 3090`, or "" without GPUs."""
    names = Counter(
        gpu["name"].removeprefix("NVIDIA ").removeprefix("GeForce ").removesuffix(" GPU")
        for gpu in gpus
    )
    return ", ".join(f"{count}× {name}" if count > 1 else name for name, count in names.items())
