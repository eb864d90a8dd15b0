"""Kernel messages of the time of a launch: out-of-memory kills, GPU faults and disk faults.

A killed rank cannot report the reason. The kernel log is readable by users in the group adm or
systemd-journal; without it, the counter of this process's cgroup still shows out-of-memory kills.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from pathlib import Path

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
