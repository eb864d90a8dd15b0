"""The NVIDIA cards of this machine, asked through NVML: processes, energy, power.

NVML is the driver's own library; nvidia-ml-py (`pynvml`) calls it. A card need not answer every
question: cards older than Volta have no energy counter, laptops no power limit, and a driver that
was just replaced answers nothing. An answer that is missing is None or empty, never an error.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import ModuleType
from typing import Any, TypeVar

import psutil

from hearth.base.nvidia import room_mib

_Answer = TypeVar("_Answer")

_MIB = 1 << 20

_RECENT = 2.0
"""Seconds of utilization samples to read. The driver takes one every sixth of a second to a second,
so that a shorter time may hold none."""


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a card.

    Attributes:
        pid: its id; one that the driver of a container knows may be another than the container's.
        memory_mib: memory on all cards; None if the driver does not tell.
        sm_percent: the newest sample of its share of a card's multiprocessors, of the card where it
            is largest; 0 if it has computed nothing lately, None if the card does not measure it.
        graphics: whether it draws; it may compute, too.
        name: of its program, without folder and arguments; "" if unknown.
    """

    pid: int
    memory_mib: int | None
    sm_percent: float | None
    graphics: bool
    name: str


@dataclass(frozen=True)
class PowerLimits:
    """Power limits of a card in watts: the one in force, and the range that it takes."""

    now: float
    default: float
    least: float
    most: float


class Cards:
    """The cards that this process may see. Get them by `open`; `close` ends the use of NVML.

    Any thread may ask. An open library keeps the driver's module loaded.

    Attributes:
        count: number of cards.
        names: their names, such as "NVIDIA GeForce RTX 5070 Ti".
        uuids: their identities, such as "GPU-5a3c…".
    """

    def __init__(self, nvml: ModuleType, handles: Sequence[Any]) -> None:
        self._nvml, self._handles = nvml, tuple(handles)
        self.count = len(self._handles)
        self.names = tuple(
            self._ask(nvml.nvmlDeviceGetName, handle) or "" for handle in self._handles
        )
        self.uuids = tuple(
            self._ask(nvml.nvmlDeviceGetUUID, handle) or "" for handle in self._handles
        )

    @classmethod
    def open(cls) -> Cards | None:
        """Return the cards; None without a driver, without nvidia-ml-py, or without a card."""
        try:
            import pynvml as nvml

            nvml.nvmlInit()
        except Exception:  # no library, no driver, or one replaced since it was loaded
            return None
        cards = None
        with suppress(nvml.NVMLError):
            handles = [
                nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())
            ]
            uuids = [nvml.nvmlDeviceGetUUID(handle) for handle in handles]
            seen = visible(os.environ.get("CUDA_VISIBLE_DEVICES"), uuids)
            cards = cls(nvml, [handles[index] for index in seen]) if seen else None
        if cards is None:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
        return cards

    def processes(self) -> tuple[GpuProcess, ...]:
        """Return the processes on all cards, this one's included, in the order of their ids."""
        found: dict[int, GpuProcess] = {}
        for handle in self._handles:
            shares = self._shares(handle)
            memory, drawing = self._listed(handle)
            for pid, mib in memory.items():
                share = None if shares is None else shares.get(pid, 0.0)
                graphics = pid in drawing
                if before := found.get(pid):
                    mib = _merged(before.memory_mib, mib, sum)
                    share = _merged(before.sm_percent, share, max)
                    graphics = graphics or before.graphics
                found[pid] = GpuProcess(pid, mib, share, graphics, self._name(pid))
        return tuple(found[pid] for pid in sorted(found))

    def room_mib(self, card: int, ours: Collection[int]) -> int | None:
        """Return the MiB of a card that a run can have, whose processes are `ours`."""
        handle, nvml = self._handles[card], self._nvml
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
        if memory is None:
            return None
        listed, _ = self._listed(handle)
        own = sum(mib or 0 for pid, mib in listed.items() if pid in ours)
        total, reserved, used = (
            bytes_ // _MIB for bytes_ in (memory.total, memory.reserved, memory.used)
        )
        return room_mib(total, reserved, used, own)

    def programs(self, card: int, ours: Collection[int]) -> list[tuple[str, int]]:
        """Return name and MiB of the processes on a card that are not `ours`, as far as told."""
        listed, _ = self._listed(self._handles[card])
        return [(self._name(pid), mib) for pid, mib in listed.items() if mib and pid not in ours]

    def energy_joules(self, card: int) -> float | None:
        """Return the energy that a card has used since its driver was loaded, in joules."""
        millijoules = self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._handles[card])
        return None if millijoules is None else millijoules / 1000

    def watts(self, card: int) -> float | None:
        """Return the power that a card draws now."""
        milliwatts = self._ask(self._nvml.nvmlDeviceGetPowerUsage, self._handles[card])
        return None if milliwatts is None else milliwatts / 1000

    def power_limits(self, card: int) -> PowerLimits | None:
        """Return a card's power limits; None if it has none that could be changed."""
        handle, nvml = self._handles[card], self._nvml
        now = self._ask(nvml.nvmlDeviceGetPowerManagementLimit, handle)
        default = self._ask(nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
        span = self._ask(nvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
        if now is None or default is None or span is None:
            return None
        return PowerLimits(now / 1000, default / 1000, span[0] / 1000, span[1] / 1000)

    def close(self) -> None:
        """End the use of NVML."""
        self._ask(self._nvml.nvmlShutdown)

    def _ask(self, question: Callable[..., _Answer], *arguments: Any) -> _Answer | None:
        """Return the answer to a question, None if it has none."""
        try:
            return question(*arguments)
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError):
            return None

    def _listed(self, handle: Any) -> tuple[dict[int, int | None], set[int]]:
        """Return the memory in MiB of a card's processes by id, and the ids of those that draw.

        A process in both of NVML's lists has the same memory in both.
        """
        computing = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        drawing = self._ask(self._nvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or ()
        memory = {
            each.pid: None if each.usedGpuMemory is None else each.usedGpuMemory // _MIB
            for each in (*computing, *drawing)
        }
        return memory, {each.pid for each in drawing}

    def _shares(self, handle: Any) -> dict[int, float] | None:
        """Return each process's newest share of the multiprocessors in percent.

        One that has computed nothing lately is not in it; None if the card does not measure it.
        """
        since = int((time.time() - _RECENT) * 1e6)
        try:
            samples = self._nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except self._nvml.NVMLError_NotFound:
            return {}
        except self._nvml.NVMLError:
            return None
        newest = sorted(samples, key=lambda sample: sample.timeStamp)
        # Some drivers fill samples that nothing wrote with arbitrary numbers.
        return {each.pid: float(each.smUtil) for each in newest if each.smUtil <= 100}

    def _name(self, pid: int) -> str:
        """Return the name of a process's program; the driver does not tell all of another user's.

        It tells the path, newer ones with the arguments.
        """
        text = self._ask(self._nvml.nvmlSystemGetProcessName, pid)
        if text and text.split():
            return PurePosixPath(text.split()[0]).name
        try:
            return psutil.Process(pid).name()
        except psutil.Error:
            return ""


def visible(setting: str | None, uuids: Sequence[str]) -> list[int]:
    """Return the indices of the cards that CUDA_VISIBLE_DEVICES lets a process see.

    As in CUDA, the first entry that is no card ends the list; None (unset) means all. Numbers are
    taken as NVML counts, by bus id, as CUDA does with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    """
    if setting is None:
        return list(range(len(uuids)))
    found: list[int] = []
    for entry in map(str.strip, setting.split(",")):
        if entry.isdecimal():
            matching = [int(entry)] if int(entry) < len(uuids) else []
        else:
            matching = [
                index for index, uuid in enumerate(uuids) if entry and uuid.startswith(entry)
            ]
        if len(matching) != 1 or matching[0] in found:
            break
        found += matching
    return found


def _merged(
    one: _Answer | None, other: _Answer | None, join: Callable[[Iterable[_Answer]], _Answer]
) -> _Answer | None:
    """Join two values, or return the one that is known; None if neither is."""
    known = [each for each in (one, other) if each is not None]
    return join(known) if known else None
