"""Temperature of a rank's GPU or processor: shown in the report, never acted on."""

from __future__ import annotations

import psutil
import torch

_PROCESSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
"""Kernel drivers that report a processor's temperature: Intel, AMD, AMD, Arm."""


def celsius(device: torch.device) -> float:
    """Return the temperature in °C of the rank's GPU, or of the processor; 0 if it is unknown.

    A sensor must never end a run: any error counts as an unknown temperature.
    """
    try:
        return _gpu(device) if device.type == "cuda" else _processor()
    except Exception:  # NVML alone has a class for each of 20 errors, and may itself be missing
        return 0.0


def _gpu(device: torch.device) -> float:
    return float(torch.cuda.temperature(device))


def _processor() -> float:
    """Return the processor's highest sensor reading; 0 without sensors (virtual machines)."""
    found = psutil.sensors_temperatures()
    return max((each.current for name in _PROCESSORS for each in found.get(name, [])), default=0.0)
