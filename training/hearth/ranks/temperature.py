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
        if device.type == "cuda":
            return float(torch.cuda.temperature(device))
        # Virtual machines have no sensors.
        found = psutil.sensors_temperatures()
        sensors = [each for name in _PROCESSORS for each in found.get(name, [])]
        return max((sensor.current for sensor in sensors), default=0.0)
    except Exception:  # NVML alone has a class for each of 20 errors, and may itself be missing
        return 0.0
