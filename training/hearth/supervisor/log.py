"""The run's log on this node: the supervisor's lines, the output of a launch, kernel messages.

A killed rank cannot report the reason: out-of-memory kills, GPU faults and disk faults are in the
kernel's log. Users in the group adm or systemd-journal may read it; without it, the counter of
this process's cgroup still shows out-of-memory kills.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

from hearth.base.files import tail
from hearth.base.text import plain
from hearth.diagnose import failed_status, is_echo, killed_by, last_error
from hearth.ranks.control_protocol import RANK_APART
from hearth.supervisor.cause import RanksFailure
from hearth.supervisor.record import now
from hearth.supervisor.spec import Spec

LOG_TAIL = 1 << 20
"""Bytes at the end of a launch's log that are searched for the error."""

_ROOM = 1 << 16
"""Bytes without which a rank can write down no error."""


def say(spec: Spec, words: str) -> None:
    """Add a line to the run's log, and to standard error for systemd or a person."""
    line = f"hearth: {now()} {plain(words)}\n".replace("\n", "\n    ").rstrip(" ")
    with suppress(OSError), spec.log.open("a", errors="backslashreplace") as log:
        log.write(line)
    with suppress(OSError):
        sys.stderr.write(line)
        sys.stderr.flush()


class LaunchLog:
    """The part of the log that the last launch has written, and the kernel's messages since then.

    `begin` comes first.
    """

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._start = 0
        self._began, self._kills_before = 0.0, 0

    def begin(self) -> None:
        """Note that torchrun is about to be started."""
        log = self._spec.log
        self._start = log.stat().st_size if log.exists() else 0
        self._began, self._kills_before = time.time(), kills_so_far()

    def text(self) -> str:
        """Return the last part of this launch's log."""
        return tail(self._spec.log, LOG_TAIL, self._start)

    def failure(self, status: int, first_rank: int | None) -> RanksFailure:
        """Return why a torchrun failed: the last real error in its log.

        `first_rank` is the number of this node's first rank, if torchrun has only this node's.
        """
        text = self.text()
        error = last_error(text, self._spec.folder, first_rank)
        if status < 0 and (error is None or error.rank is None or is_echo(error.message)):
            return RanksFailure(None, f"torchrun was {killed_by(-status)}", curable=True)
        if error is None:
            # A rank that could say nothing of its error: of a full disk, or of none that is known.
            full = shutil.disk_usage(self._spec.log.parent).free < _ROOM
            message = f"torchrun ended with status {status}: see its log"
            if full:
                message = (
                    f"torchrun ended with status {status}, and its log cannot say why: the disk of "
                    f"{self._spec.log} is full; free some space, then resume the run"
                )
            return RanksFailure(None, message, local=full)
        apart = not self._spec.scripted and failed_status(text) == RANK_APART
        return RanksFailure(
            error.rank, error.placed, error.killed, apart or _is_local(error.message)
        )

    async def kernel(self) -> list[str]:
        """Return the kernel's messages since the launch began."""
        return await kernel_said(self._began, self._kills_before)


def _is_local(error: str) -> bool:
    """Return whether an error is that of one machine, by the catalogue of known errors."""
    from hearth.diagnose.catalogue import is_local  # with pydantic, which few runs need

    return is_local(error)


PATIENCE = 3.0
"""Timeout in seconds for reading the journal."""

LINES = 5
"""Number of lines kept: the last ones."""

_TELLING = re.compile(
    r"Out of memory: Killed process|oom-kill:|Killed \S+ due to memory pressure|NVRM: Xid"
    r"|critical temperature reached|I/O error|Remounting filesystem read-only"
)
_CGROUPS = Path("/sys/fs/cgroup")


def telling(lines: list[str]) -> list[str]:
    """Return the last of the lines that may explain the end of a rank, without time and host."""
    return [line.strip() for line in lines if _TELLING.search(line)][-LINES:]


def kills_so_far(cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return the number of out-of-memory kills in this process's cgroup; 0 if unknown."""
    with suppress(OSError, StopIteration):
        place = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
        events = (cgroups / place.lstrip("/") / "memory.events").read_text()
        found = re.search(r"^oom_kill (\d+)$", events, re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


async def kernel_said(since: float, kills_before: int) -> list[str]:
    """Return the kernel messages since a time (seconds since the epoch) that may concern a run.

    `since` is when the launch began, `kills_before` are the `kills_so_far` at that time.
    """
    lines = telling(await _journal(since))
    kills = kills_so_far() - kills_before
    if kills > 0 and not lines:
        lines.append(f"oom-kill: {kills} of this run's processes, by its memory.events")
    return lines


async def _journal(since: float) -> list[str]:
    """Return the lines of the kernel and of systemd-oomd; none if they are not readable."""
    try:
        process = await asyncio.create_subprocess_exec(
            *("journalctl", "--quiet", "--no-pager", "--output=cat", f"--since=@{int(since)}"),
            *("_TRANSPORT=kernel", "+", "SYSLOG_IDENTIFIER=systemd-oomd"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return []
    try:
        said, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return []
    return said.decode(errors="replace").splitlines()
