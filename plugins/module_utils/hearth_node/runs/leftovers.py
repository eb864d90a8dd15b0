"""What runs that have ended have left on a node: processes, units and torchrun's own files."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
from typing import Any

from ansible.module_utils.hearth.base.places import SUPERVISED, TORCHRUN
from ansible.module_utils.hearth_node.base import run_under_way, text_of



def processes(workspace: str, proc: str = "/proc") -> tuple[set[int], list[dict[str, Any]]]:
    """Return the processes of the run that is under way here, and those that belong to none.

    Supervisors are known by their command line, what they start by its environment. Of the others,
    who have outlived their supervisor, come `pid` and `what` each is. Only those of this user can
    be seen.
    """
    found = {
        int(name): what
        for name in os.listdir(proc)
        if name.isdecimal() and (what := _what(os.path.join(proc, name), workspace))
    }
    kept = set()
    if run_under_way(workspace):
        # All of a run's descend from its supervisor, which is the only one that may be alive.
        supervisors = {pid for pid, what in found.items() if what == "supervisor"}
        kept = {pid for pid in found if _ancestors(pid, proc) & supervisors} | supervisors
    lost = [{"pid": pid, "what": found[pid]} for pid in sorted(found.keys() - kept)]
    return kept, lost


def _what(folder: str, workspace: str) -> str:
    """Return what a process is of a run in this workspace, or nothing."""
    words = text_of(os.path.join(folder, "cmdline")).split("\0")
    if "hearth.supervise" in words and "run" in words:
        own = os.path.join(workspace, "config", "")
        return "supervisor" if any(word.startswith(own) for word in words) else ""
    environment = text_of(os.path.join(folder, "environ")).split("\0")
    if f"{SUPERVISED}={workspace}" not in environment:
        return ""
    if TORCHRUN in words:
        return "torchrun"
    return "rank" if any(word.endswith("train_distributed.py") for word in words) else "process"


def _ancestors(pid: int, proc: str) -> set[int]:
    """Return the parents of a process, all of them."""
    found: set[int] = set()
    while pid > 1 and pid not in found:
        found.add(pid)
        # The name before it, in brackets, may hold anything.
        parent = text_of(os.path.join(proc, str(pid), "stat")).rpartition(")")[2].split()
        pid = int(parent[1]) if len(parent) > 1 else 0
    return found


def files(workspace: str) -> list[str]:
    """Return the units and the scratch folders of torchrun whose run is not under way, by path."""
    busy = run_under_way(workspace)
    found = []
    for path in sorted(glob.glob(os.path.join(_units(), "hearth-*.service"))):
        run = os.path.basename(path).removeprefix("hearth-").removesuffix(".service")
        # Another workspace of this user may have a run of the same name.
        own = os.path.join(workspace, "config", f"{run}.json") in text_of(path)
        if own and run != busy:
            found.append(path)
    for path in sorted(glob.glob(os.path.join(glob.escape(workspace), "logs", ".*.torchrun"))):
        if os.path.basename(path)[1:].removesuffix(".torchrun") != busy:
            found.append(path)
    return found


def tidy(workspace: str) -> list[str]:
    """Remove what `files` returns, and return it. Raises `OSError` if something cannot be."""
    gone = files(workspace)
    for path in gone:
        if os.path.isdir(path):
            shutil.rmtree(path)
            continue
        wanted = os.path.join(_units(), "default.target.wants", os.path.basename(path))
        if os.path.lexists(wanted):
            os.unlink(wanted)
        os.unlink(path)
        _forget_units()
    return gone


def _units() -> str:
    return os.path.join(pwd.getpwuid(os.getuid()).pw_dir, ".config", "systemd", "user")


def _forget_units() -> None:
    """Let the user's systemd, if there is one, look at its units anew."""
    if shutil.which("systemctl") is None:
        return
    subprocess.run(
        ["systemctl", "--user", "daemon-reload"],
        env={"XDG_RUNTIME_DIR": f"/run/user/{os.getuid()}", **os.environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
