"""The NVIDIA GPUs that this machine's driver lists."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

NVIDIA_SMI = [
    "nvidia-smi",
    "--query-gpu=name,memory.total,driver_version,compute_cap",
    "--format=csv,noheader,nounits",
]
"""The command that lists the GPUs."""


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
