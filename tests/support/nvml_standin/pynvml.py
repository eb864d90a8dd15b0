"""A stand-in for nvidia-ml-py where there is no NVIDIA card.

It answers from the JSON file that HEARTH_NVML_STANDIN names, read again for each question; `{node}`
in that name stands for the node of the process. Ranks, to whom a supervisor hands no variable of
Hearth's on, find the name in STAND_IN_NVML. Programs find this module instead of the real one if
its folder is first on PYTHONPATH. `tests/support/nvml.py` writes the file and says what stands in
it. The functions have the names, units and errors of nvidia-ml-py 13.615.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NotFound(NVMLError):
    pass


class NVMLError_LibraryNotFound(NVMLError):
    pass


class NVMLError_DriverNotLoaded(NVMLError):
    pass


class NVMLLibraryMismatchError(Exception):
    pass


_MIB = 1 << 20

nvmlMemory_v2 = 2


def stand_in_uuids() -> list[str]:
    """Return the UUIDs of all cards, which the real module has no function for; [] without any."""
    try:
        return [card["uuid"] for card in _cards()]
    except NVMLError:
        return []


def nvmlInit() -> None:
    _cards()


def nvmlShutdown() -> None:
    pass


def nvmlDeviceGetCount() -> int:
    return len(_cards())


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetName(card: int) -> str:
    return _cards()[card]["name"]


def nvmlDeviceGetUUID(card: int) -> str:
    return _cards()[card]["uuid"]


def nvmlDeviceGetTotalEnergyConsumption(card: int) -> int:
    counter = _answer(card, "energy")
    rising = counter["watts"] * (time.time() - counter["since"])
    return round((counter["joules"] + rising) * 1000)


def nvmlDeviceGetPowerUsage(card: int) -> int:
    return round(_answer(card, "watts") * 1000)


def nvmlDeviceGetTemperature(card: int, sensor: int) -> int:
    return round(_answer(card, "celsius"))


def nvmlDeviceGetPowerManagementLimit(card: int) -> int:
    return round(_answer(card, "limits")["now"] * 1000)


def nvmlDeviceGetPowerManagementDefaultLimit(card: int) -> int:
    return round(_answer(card, "limits")["default"] * 1000)


def nvmlDeviceGetPowerManagementLimitConstraints(card: int) -> list[int]:
    limits = _answer(card, "limits")
    return [round(limits["least"] * 1000), round(limits["most"] * 1000)]


def nvmlDeviceGetMemoryInfo(card: int, version: int) -> SimpleNamespace:
    if version != nvmlMemory_v2:
        raise NVMLError_NotSupported
    total, reserved, others = (mib * _MIB for mib in _answer(card, "memory"))
    held = sum(each["memory_mib"] or 0 for each in _cards()[card]["processes"]) * _MIB
    return SimpleNamespace(total=total, reserved=reserved, used=others + held)


def nvmlDeviceGetComputeRunningProcesses(card: int) -> list[SimpleNamespace]:
    return [_listed(each) for each in _cards()[card]["processes"] if each["compute"]]


def nvmlDeviceGetGraphicsRunningProcesses(card: int) -> list[SimpleNamespace]:
    return [_listed(each) for each in _cards()[card]["processes"] if each["graphics"]]


def nvmlDeviceGetProcessUtilization(card: int, since: int) -> list[SimpleNamespace]:
    processes = _cards()[card]["processes"]
    if processes and all(each["sm_percent"] is None for each in processes):
        raise NVMLError_NotSupported
    now = round(time.time() * 1e6)
    samples = [
        SimpleNamespace(pid=each["pid"], timeStamp=now, smUtil=round(each["sm_percent"]))
        for each in processes
        if each["sm_percent"]
    ]
    if not samples or now <= since:
        raise NVMLError_NotFound
    return samples


def nvmlSystemGetProcessName(pid: int) -> str:
    for card in _cards():
        for each in card["processes"]:
            if each["pid"] == pid and each["name"]:
                return each["name"]
    raise NVMLError_NotFound


def _cards() -> list[dict[str, Any]]:
    try:
        file = os.environ.get("HEARTH_NVML_STANDIN") or os.environ["STAND_IN_NVML"]
        node = os.environ.get("HEARTH_NODE", "")
        return json.loads(Path(file.replace("{node}", node)).read_text())["cards"]
    except (KeyError, FileNotFoundError):
        raise NVMLError_LibraryNotFound from None


def _answer(card: int, name: str) -> Any:
    if _cards()[card][name] is None:
        raise NVMLError_NotSupported
    return _cards()[card][name]


def _listed(process: dict[str, Any]) -> SimpleNamespace:
    mib = process["memory_mib"]
    return SimpleNamespace(pid=process["pid"], usedGpuMemory=None if mib is None else mib * _MIB)
