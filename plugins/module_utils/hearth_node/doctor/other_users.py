"""Runs of Hearth that other users of this machine have under way, as far as the kernel shows them.

The command line and the processor time of other users' processes can be read, their environment
cannot; with the mount option `hidepid` neither can. A container is a machine of its own: what runs
in one is left out.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Collection
from typing import Any

from ansible.module_utils.hearth.base.places import SUPERVISORS
from ansible.module_utils.hearth_node.base import text_of
from ansible.module_utils.hearth_node.driver import gpu_use

_RECORD = re.compile(r"(?P<workspace>/.*)/config/(?P<run>[^/]+)\.json")
_IN_CONTAINER = re.compile(r"^NSpid:\s+\d+\s+\d", re.MULTILINE)
_HIDDEN = re.compile(r"^proc \S+ proc \S*hidepid=(?!0|off)", re.MULTILINE)


def runs_of_others(proc: str = "/proc", own: int | None = None) -> list[dict[str, Any]] | None:
    """Return the runs of other users that compute here; None if their processes are hidden.

    Each has its `user`, `run`, `since` (seconds since 1970), the number of `processors` that it has
    used on average, the indices of its `gpus`, and its `pids`. `own` is this user's id.
    """
    own = os.getuid() if own is None else own
    if own and _HIDDEN.search(text_of(f"{proc}/mounts")):
        return None
    parents = {int(name): _stat(proc, name) for name in os.listdir(proc) if name.isdecimal()}
    found = []
    for pid in parents:
        words = text_of(f"{proc}/{pid}/cmdline").split("\0")
        if not SUPERVISORS & {*words} or _owner(proc, pid) in (own, None):
            continue
        if _IN_CONTAINER.search(text_of(f"{proc}/{pid}/status")):
            continue
        place = next(filter(None, map(_RECORD.fullmatch, words)), None)
        # A supervisor that waits for its turn has no ranks, and one forks the other.
        ranks = _descendants(pid, parents)
        if place and ranks and not any(_is_supervisor(proc, each) for each in ranks):
            found.append((pid, place["run"], {pid, *ranks}))
    if not found:
        return []
    on_gpus = _gpus_by_process()
    return [
        {
            "user": _name(_owner(proc, pid)),
            "run": run,
            **_time(proc, pid, pids, parents),
            "gpus": sorted({gpu for each in pids for gpu in on_gpus.get(each, ())}),
            "pids": sorted(pids),
        }
        for pid, run, pids in found
    ]


def _stat(proc: str, pid: str) -> list[str]:
    """Return the fields of a process behind its name, which may contain any characters."""
    return text_of(f"{proc}/{pid}/stat").rpartition(")")[2].split()


def _owner(proc: str, pid: int) -> int | None:
    try:
        return os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None


def _name(uid: int | None) -> str:
    try:
        return pwd.getpwuid(uid or 0).pw_name
    except KeyError:
        return f"user {uid}"


def _is_supervisor(proc: str, pid: int) -> bool:
    return bool(SUPERVISORS & {*text_of(f"{proc}/{pid}/cmdline").split("\0")})


def _descendants(pid: int, parents: dict[int, list[str]]) -> Collection[int]:
    """Return the pids of all processes below one."""
    found: set[int] = set()
    new = {pid}
    while new:
        new = {
            each
            for each, fields in parents.items()
            if len(fields) > 1 and int(fields[1]) in new and each not in found
        }
        found |= new
    return found


def _time(
    proc: str, pid: int, pids: Collection[int], parents: dict[int, list[str]]
) -> dict[str, float]:
    """Return when a process began, and the processors that it and its descendants have used."""
    ticks = os.sysconf("SC_CLK_TCK")
    booted = re.search(r"^btime (\d+)", text_of(f"{proc}/stat"), re.MULTILINE)
    fields = parents[pid]  # proc(5): state is the third field, and starttime the 22nd
    since = (int(booted[1]) if booted else 0) + int(fields[19]) / ticks
    used = sum(int(parents[each][11]) + int(parents[each][12]) for each in pids) / ticks
    return {"since": since, "processors": round(used / max(time.time() - since, 1.0), 1)}


def _gpus_by_process() -> dict[int, set[int]]:
    """Return the indices of the GPUs that each process uses."""
    found: dict[int, set[int]] = {}
    for gpu in gpu_use.use_of_gpus(())[0]:
        for program in gpu["programs"]:
            found.setdefault(program["pid"], set()).add(gpu["index"])
    return found
