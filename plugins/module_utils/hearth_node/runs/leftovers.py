"""Leftovers of ended runs on a node: processes, units and torchrun's own files."""

from __future__ import annotations

import glob
import os
from typing import Any

from ansible.module_utils.hearth.base.locks import queued_runs
from ansible.module_utils.hearth.base.places import SUPERVISED, SUPERVISORS, TORCHRUN
from ansible.module_utils.hearth.base.systemd import units_folder, units_of, user_systemctl
from ansible.module_utils.hearth_node.base import (
    remove_path,
    run_under_way,
    text_of,
)


def processes(workspace: str, proc: str = "/proc") -> tuple[set[int], list[dict[str, Any]]]:
    """Return the processes of the runs under way or in the queue here, and those of no run.

    Supervisors are recognised by their command line, their children by the environment. Processes
    that have outlived their supervisor are returned with `pid` and `what` they are. Only those of
    this user can be seen.
    """
    found = {
        int(name): what
        for name in os.listdir(proc)
        if name.isdecimal() and (what := _what(os.path.join(proc, name), workspace))
    }
    kept = set()
    if run_under_way(workspace) or queued_runs(workspace):
        # All processes of a run descend from its supervisor, which ends by itself unless it holds
        # the lock or waits for it.
        supervisors = {pid for pid, what in found.items() if what == "supervisor"}
        kept = {pid for pid in found if _ancestors(pid, proc) & supervisors} | supervisors
    lost = [{"pid": pid, "what": found[pid]} for pid in sorted(found.keys() - kept)]
    return kept, lost


def _what(folder: str, workspace: str) -> str:
    """Return a process's role in a run of this workspace, such as `rank`, or ''."""
    words = text_of(os.path.join(folder, "cmdline")).split("\0")
    if SUPERVISORS & {*words} and {"run", "start"} & {*words}:  # `start` forks it
        own = os.path.join(workspace, "config", "")
        return "supervisor" if any(word.startswith(own) for word in words) else ""
    environment = text_of(os.path.join(folder, "environ")).split("\0")
    if f"{SUPERVISED}={workspace}" not in environment:
        return ""
    if TORCHRUN in words:
        return "torchrun"
    return "rank" if any(word.endswith("train_distributed.py") for word in words) else "process"


def _ancestors(pid: int, proc: str) -> set[int]:
    """Return the pids of a process and all its ancestors."""
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
        # The name before it, in parentheses, may contain any characters.
        parent = text_of(os.path.join(proc, str(pid), "stat")).rpartition(")")[2].split()
        pid = int(parent[1]) if len(parent) > 1 else 0
    return found


def files(workspace: str) -> list[str]:
    """Return the paths of units and torchrun scratch folders whose run is over."""
    busy = {run_under_way(workspace), *queued_runs(workspace)}
    found = [str(path) for run, path in units_of(workspace).items() if run not in busy]
    for path in sorted(glob.glob(os.path.join(glob.escape(workspace), "logs", ".*.torchrun"))):
        if os.path.basename(path)[1:].removesuffix(".torchrun") not in busy:
            found.append(path)
    return found


def tidy(workspace: str) -> list[str]:
    """Remove and return the paths from `files`. Raises `OSError` if one cannot be removed."""
    gone = files(workspace)
    for path in gone:
        wanted = os.path.join(units_folder(), "default.target.wants", os.path.basename(path))
        if os.path.lexists(wanted):
            os.unlink(wanted)
        remove_path(path)
    if any(path.endswith(".service") for path in gone):
        user_systemctl("daemon-reload")
    return gone
