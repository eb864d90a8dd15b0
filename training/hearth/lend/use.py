"""The rules by which a reading of the sensors means that somebody wants the machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from hearth.base.nvml import GpuProcess
from hearth.base.text import plain
from hearth.lend.choice import Choice

COMPUTE_MIB, COMPUTE_SM = 64, 10.0
"""Memory, or share of the GPU's time in percent, from which a compute process counts."""

GRAPHICS_MIB, GRAPHICS_SM = 1024, 20.0
"""The same for a process that draws: browsers and players stay below."""

CORES, SHARE_OF_CORES = 0.5, 0.1
"""Other processes may take this many cores, or this share of all if that is more."""

DESKTOP = (
    *("Xorg", "Xwayland", "X", "gnome-shell", "mutter*", "kwin_*", "plasmashell", "ksmserver"),
    *("sway", "Hyprland", "river", "niri", "labwc", "wayfire", "weston*", "cosmic-comp"),
    *("cinnamon", "muffin", "marco", "xfwm4", "picom", "compton", "budgie-wm", "gala"),
    *("gdm*", "sddm*", "lightdm*"),
)
"""Programs of a desktop itself, which never count, whatever they take. Patterns of their names."""

_LONGEST_NAME = 60


@dataclass(frozen=True)
class Load:
    """Average number of cores that others' processes take, and the name of the busiest one."""

    cores: float
    busiest: str = ""


@dataclass(frozen=True)
class Reading:
    """The sensors of a node at one time; a sensor that the node's terms do not need says nothing.

    `gpu` holds the processes on the GPUs that are not Hearth's, `load` the use of a node without
    GPUs (None until it is known) and `cores` its number of cores; `command` is the reason for which
    lend_command says no, "" if it says yes.
    """

    choice: Choice = field(default_factory=Choice)
    gpu: tuple[GpuProcess, ...] = ()
    load: Load | None = None
    cores: int = 1
    on_battery: bool = False
    command: str = ""


def certain_use(reading: Reading) -> str:
    """Return the reason why somebody wants the machine that one reading is enough for, or ""."""
    if reading.command:
        return reading.command
    if reading.on_battery:
        return "it runs on its battery"
    return _first(reading.gpu, _holds_memory)


def likely_use(reading: Reading) -> str:
    """Return the reason that needs another such reading, or "": a share of time, which has peaks.

    A page that scrolls makes a browser draw for a second, which is no game.
    """
    return _first(reading.gpu, _is_busy) or _of_processor(reading.load, reading.cores)


def _holds_memory(process: GpuProcess) -> bool:
    """Return whether a process takes the GPU's memory, or computes where nothing tells how much."""
    if process.graphics:
        return (process.memory_mib or 0) >= GRAPHICS_MIB
    if process.memory_mib is None:
        return process.sm_percent is None
    return process.memory_mib >= COMPUTE_MIB


def _is_busy(process: GpuProcess) -> bool:
    """Return whether a process takes the GPU's time."""
    return (process.sm_percent or 0) >= (GRAPHICS_SM if process.graphics else COMPUTE_SM)


def _first(processes: Iterable[GpuProcess], counts: Callable[[GpuProcess], bool]) -> str:
    """Return the use by the first of the processes that counts and is no part of a desktop."""
    for process in sorted(processes, key=lambda each: each.pid):
        name = short_name(process.name)
        if counts(process) and not any(fnmatchcase(name, pattern) for pattern in DESKTOP):
            doing = "draws" if process.graphics else "computes"
            return f"{name or 'a program'} (process {process.pid}) {doing} on the GPU"
    return ""


def _of_processor(load: Load | None, cores: int) -> str:
    """Return the use that others make of a processor with that many cores, or ""."""
    if load is None or load.cores <= max(CORES, SHARE_OF_CORES * cores):
        return ""
    busiest = f", {short_name(load.busiest)} most of all" if load.busiest else ""
    return f"other programs take {load.cores:.1f} of {cores} cores{busiest}"


def short_name(program: str) -> str:
    """Return the name of a program without its folder and arguments, fit to be shown."""
    path = re.split(r"\s-", plain(program).strip())[0]
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1].strip()[:_LONGEST_NAME]
