"""The sensors of a node: GPUs, processor, power supply, lend_command and the person's word."""

from __future__ import annotations

import os
import platform
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from hearth.base.nvml import Cards, GpuProcess
from hearth.base.systems import under_windows
from hearth.lend import choice
from hearth.lend.command import Command
from hearth.lend.lender import CpuLoad, Reading
from hearth.lend.processes import Processes, Table, used_by_others
from hearth.lend.terms import IDLE, Terms

AVERAGED = 10.0
"""Seconds over which the processor's load is averaged, at least."""

SEARCH_EVERY = 30.0
"""Seconds between two searches for GPUs on a node that has shown none yet."""

BLIND = "lend_when: idle cannot see from WSL who uses Windows or its GPU"
"""The reason of a node whose driver lists no program of Windows: it would lend during a game."""

_SUPPLIES = Path("/sys/class/power_supply")


class Sensors:
    """Everything that a node's terms depend on, read together.

    A reading takes milliseconds, except the first one, which waits for the first answer of
    lend_command. With GPUs, which `find` opens, their processes are read, else the load of the
    processor; a driver may appear later, as after a start of the machine.
    """

    def __init__(
        self,
        terms: Terms,
        workspace: Path,
        *,
        supplies: Path = _SUPPLIES,
        clock: Callable[[], float] = time.monotonic,
        find: Callable[[], Cards | None] = Cards.open,
    ) -> None:
        self._terms, self._workspace = terms, workspace
        self._supplies, self._clock, self._find = supplies, clock, find
        self._cards: Cards | None = None
        self._next_search = clock()
        self._processes = Processes()
        self._load = LoadMeter(clock)
        self._command = Command(terms.command, workspace) if terms.command else None

    def read(self) -> Reading:
        """Return the sensors' state now."""
        word = choice.read(self._workspace)
        command = self._command.reason() if self._command else ""
        if self._terms.when != IDLE:
            return Reading(word, command=command)
        if under_windows(platform.release()):  # a launch refuses this, an older run goes on
            return Reading(word, command=command or BLIND)
        if self._cards is None and self._clock() >= self._next_search:
            self._cards = self._find()
            self._next_search = self._clock() + SEARCH_EVERY
        table = self._processes.snapshot() if self._cards is None else {}
        return Reading(
            word,
            gpu=self._others_on_gpus(),
            load=self._load.add(table) if self._cards is None else None,
            cores=len(os.sched_getaffinity(0)),
            on_battery=on_battery(self._supplies),
            command=command,
        )

    def close(self) -> None:
        """Start lend_command no more, and close the cards."""
        if self._command:
            self._command.close()
        if self._cards:
            self._cards.close()

    def _others_on_gpus(self) -> tuple[GpuProcess, ...]:
        """Return the processes on the GPUs that are not Hearth's and visible from here."""
        if self._cards is None:
            return ()
        there = self._cards.processes()
        table = self._processes.snapshot() if there else {}
        return tuple(
            each
            for each in there
            if (not table[each.pid].ours if each.pid in table else _hidden(each.pid))
        )


class LoadMeter:
    """The load of the other programs, averaged over the last ten seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: Table | None = None
        self._spans: deque[tuple[float, float, str]] = deque()  # end, seconds used, the busiest
        self._began = 0.0

    def add(self, table: Table) -> CpuLoad | None:
        """Add a table of processes; return the average, None in the first ten seconds."""
        now = self._clock()
        if self._last is None:
            self._last, self._began = table, now
            return None
        self._spans.append((now, *used_by_others(self._last, table)))
        self._last = table
        while len(self._spans) > 1 and now - self._spans[0][0] >= AVERAGED:
            self._began = self._spans.popleft()[0]
        passed = now - self._began
        if passed < AVERAGED:
            return None
        used = sum(seconds for _, seconds, _ in self._spans)
        busiest = max(self._spans, key=lambda span: span[1])[2]
        return CpuLoad(used / passed, busiest)


def on_battery(supplies: Path = _SUPPLIES) -> bool:
    """Return whether this machine runs on its battery, by its folder of power supplies."""
    mains, plugs, discharging = [], [], False
    for supply in sorted(supplies.glob("*")):
        kind = _text(supply / "type")
        if kind == "Battery" and _text(supply / "scope") != "Device":  # not a mouse's
            discharging |= _text(supply / "status") == "Discharging"
        elif kind in ("Mains", "USB"):
            (mains if kind == "Mains" else plugs).append(_text(supply / "online") == "1")
    return not any(mains + plugs) and (bool(mains) or discharging)


def _hidden(pid: int) -> bool:
    """Return whether a process exists here although /proc does not show it: another user's.

    An id that is unknown here is of another container, whose processes may be our own.
    """
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
