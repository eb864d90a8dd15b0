"""The decision whether a node lends: what counts as use, and for how long it stays away. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from hearth.base.clock import when
from hearth.base.nvml import GpuProcess
from hearth.base.text import plain
from hearth.lend.choice import OFF, ON, LendChoice
from hearth.lend.terms import Terms

_IN_A_ROW = 2
"""Readings in a row that must show a likely use: a leave costs the start of the ranks."""


class Lender:
    """A node's decisions, one reading after another.

    It leaves at once, and returns after the quiet time without any use: so use
    that comes and goes takes it away at most once in that time. A person's word and the hours need
    no quiet time.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._quiet_time = timedelta(minutes=terms.after_minutes)
        self._in_a_row = 0  # readings that showed a likely use
        self._likely = ""  # the first of them in words, kept so that a reason does not flicker
        self._used: float | None = None  # time of the last reading that showed use
        self._use = ""
        self._return = ""  # local time of the return, without further use
        self._opening: datetime | None = None

    def decide(self, now: float, local: datetime, reading: Reading) -> str:
        """Return "" if the node lends, else the reason why it is away.

        `now` is in seconds of a clock that is never set, `local` the node's `local_time`. While
        nothing changes, neither does the reason.
        """
        used = self._use_in(reading)
        if used:
            self._used, self._use = now, used
            back = local.astimezone(UTC) + self._quiet_time
            self._return = f"{back.astimezone(local.tzinfo):%H:%M}"
        match reading.choice.at(local):
            case word if word == OFF:
                return _of_choice(reading.choice, local)
            case word if word == ON:
                return ""
        if not self._terms.hours.open_at(local):
            return self._closed(local)
        if used:
            return used
        if self._used is None or now - self._used >= self._quiet_time.total_seconds():
            return ""
        return f"{self._use}; quiet now, lends again at {self._return}"

    def _use_in(self, reading: Reading) -> str:
        """Return the use that a reading shows, with the ones before it, or ""."""
        likely = likely_use(reading)
        self._in_a_row = self._in_a_row + 1 if likely else 0
        if self._in_a_row <= 1:
            self._likely = likely
        return certain_use(reading) or (self._likely if self._in_a_row >= _IN_A_ROW else "")

    def _closed(self, local: datetime) -> str:
        if self._opening is None or local.timestamp() >= self._opening.timestamp():
            self._opening = self._terms.hours.next_opening(local)
        return f"its hours are {self._terms.hours}; lends again at {self._opening:%H:%M}"


def _of_choice(choice: LendChoice, local: datetime) -> str:
    if choice.trouble:
        return choice.trouble
    since = f" since {when(choice.since, local)}" if choice.since else ""
    until = f" until {when(choice.until, local)}" if choice.until else ""
    return f"switched off by hand{since}{until}"


COMPUTE_MIB, COMPUTE_SM = 64, 10.0
"""Least memory, or share of the GPU's time in percent, of a compute process that counts."""

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
class CpuLoad:
    """Average number of cores that others' processes take, and the name of the busiest one."""

    cores: float
    busiest: str = ""


@dataclass(frozen=True)
class Reading:
    """The sensors of a node at one time; a sensor that the node's terms do not need says nothing.

    `gpu` holds the processes on the GPUs that are not Hearth's, `load` the use of a node without
    GPUs (None until it is known) and `cores` its number of cores; `command` is the reason why
    lend_command says no, "" if it says yes.
    """

    choice: LendChoice = field(default_factory=LendChoice)
    gpu: tuple[GpuProcess, ...] = ()
    load: CpuLoad | None = None
    cores: int = 1
    on_battery: bool = False
    command: str = ""


def certain_use(reading: Reading) -> str:
    """Return the reason for use that a single reading proves, or ""."""
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


def _of_processor(load: CpuLoad | None, cores: int) -> str:
    """Return the use that others make of a processor with that many cores, or ""."""
    if load is None or load.cores <= max(CORES, SHARE_OF_CORES * cores):
        return ""
    busiest = f", {short_name(load.busiest)} most of all" if load.busiest else ""
    return f"other programs take {load.cores:.1f} of {cores} cores{busiest}"


def short_name(program: str) -> str:
    """Return the name of a program without its folder and arguments, fit to be shown."""
    path = re.split(r"\s-", plain(program).strip())[0]
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1].strip()[:_LONGEST_NAME]
