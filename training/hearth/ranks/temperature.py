"""How warm what a rank computes on is: shown in the report, never acted on."""

from __future__ import annotations

import psutil
import torch

_PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Drivers of the kernel that know a processor's temperature: Intel, AMD, AMD, Arm."""


def celsius(device: torch.device) -> float:
    """Return the temperature of a rank's GPU, or of the computer's processor; 0 if it is unknown.

    No sensor is worth a run: whatever is wrong with one, its temperature is unknown.
    """
    try:
        return _gpu(device) if device.type == "cuda" else _processor()
    except Exception:  # NVML alone has a class for each of 20 errors, and may itself be missing
        return 0.0


def _gpu(device: torch.device) -> float:
    return float(torch.cuda.temperature(device))


def _processor() -> float:
    """Return the warmest place of the processor; virtual machines have no sensors."""
    found = psutil.sensors_temperatures()
    return max((each.current for name in _PROCESSORS for each in found.get(name, [])), default=0.0)
