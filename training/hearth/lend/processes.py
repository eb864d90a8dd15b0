"""Processes of this machine, told apart: those of Hearth, and those of the owner.

Only visible processes count, never the sums of /proc/stat: in a container those are the host's.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from hearth.base.places import SUPERVISED

_KERNEL_THREAD = 0x00200000
"""Flag of a kernel thread, which works for everybody (PF_KTHREAD)."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """One process: its parent's id, name, start (ticks after the boot) and processor seconds.

    The seconds include those of its children that have ended and been waited for, so that nothing
    is lost when a process ends between two looks. `ours` is whether it belongs to a Hearth run.
    """

    parent: int
    name: str
    started: int
    seconds: float
    ours: bool = False


Table = Mapping[int, Process]


class Processes:
    """Tables of all visible processes, one look after another.

    Ours are this process, those below it, those that carry a supervisor's mark (also of another
    workspace of this user) and Hearth's commands with everything below them.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[tuple[int, int, str], bool] = {}  # ours, by id, start and name

    def snapshot(self) -> dict[int, Process]:
        """Return all processes that this user can see but the kernel's threads, by id."""
        found: dict[int, Process] = {}
        for entry in os.listdir(self._proc):
            if entry.isdecimal():
                with suppress(OSError, ValueError):
                    if process := _process(_read(f"{self._proc}/{entry}/stat")):
                        found[int(entry)] = process
        known: dict[tuple[int, int, str], bool] = {}
        for pid in list(found):
            self._tell(pid, found, known)
        self._known = known
        return found

    def _tell(
        self, pid: int, found: dict[int, Process], known: dict[tuple[int, int, str], bool]
    ) -> bool:
        """Note in `found` whether a process and those above it are ours, and return it.

        A process keeps its classification when its parent dies; with another name it is another
        program.
        """
        if (process := found.get(pid)) is None:
            return False
        key = (pid, process.started, process.name)
        if key not in known:
            known[key] = False  # a parent that is its own child would go round for ever
            known[key] = (
                self._known[key]
                if key in self._known
                else self._carries_mark(pid) or self._tell(process.parent, found, known)
            )
            if known[key]:
                found[pid] = replace(process, ours=True)
        return known[key]

    def _carries_mark(self, pid: int) -> bool:
        if pid == os.getpid():
            return True
        with suppress(OSError):
            folder = self._proc / str(pid)
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if any(a == b"-m" and b.startswith(b"hearth.") for a, b in pairwise(words)):
                return True
            mark = f"{SUPERVISED}=".encode()
            variables = (folder / "environ").read_bytes().split(b"\0")
            return any(variable.startswith(mark) for variable in variables)
        return False


def used_by_others(before: Table, after: Table) -> tuple[float, str]:
    """Return the processor seconds of the owner between two looks, and the busiest program."""
    by_name: dict[str, float] = defaultdict(float)
    for process in after.values():
        if not process.ours:
            by_name[process.name] += process.seconds
    for pid, process in before.items():
        if process.ours:
            # Its seconds go to the owner's process that waits for it, such as the user's systemd.
            heir = _heir(pid, before, after)
            if heir is not None:
                by_name[after[heir].name] -= process.seconds
        else:
            by_name[process.name] -= process.seconds
    used = sum(by_name.values())
    busiest = max(by_name, key=lambda name: by_name[name], default="")
    return (used, busiest) if used > 0 else (0.0, "")


def _heir(pid: int, before: Table, after: Table) -> int | None:
    """Return the living process of the owner that has waited for a process of ours, if any."""
    while pid not in after or after[pid].started != before[pid].started:
        pid = before[pid].parent
        if pid not in before:
            return None
    return None if after[pid].ours else pid


def _read(path: str) -> str:
    """Return a line of the kernel's, in half the time that Path takes: it is one of hundreds."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 4096).decode("latin-1")
    finally:
        os.close(descriptor)


def _process(stat: str) -> Process | None:
    """Return the process of a line of /proc/PID/stat, whose name may hold brackets.

    None for a thread of the kernel.
    """
    head, _, rest = stat.rpartition(")")
    fields = rest.split()
    if int(fields[6]) & _KERNEL_THREAD:
        return None
    return Process(
        parent=int(fields[1]),
        name=head.partition("(")[2],
        started=int(fields[19]),
        seconds=sum(map(int, fields[11:15])) / _TICKS,
    )
