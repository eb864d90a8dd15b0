"""Programs that tests run, and stand-ins of programs: shell scripts."""

from __future__ import annotations

import os
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil

from support.waiting import HANG


def run(
    *words: object, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with these variables besides its own, and return how it ended."""
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANG,
    )


def at_work_in(*workspaces: Path) -> list[psutil.Process]:
    """Return the living processes whose HEARTH_WORKSPACE is one of these, wherever they went."""
    places, found = [str(workspace) for workspace in workspaces], []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get("HEARTH_WORKSPACE") in places:
                found.append(process)
    return found


def stand_in(path: Path, script: str) -> Path:
    """Write a shell script that can be called, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


NOISE = ["", "echo welcome", "printf welcome", 'echo "{welcome}"', "echo welcome; sleep 0.1"]
"""Lines of a .bashrc that print, and one that does not."""


def login(folder: Path, bashrc: str = "") -> SimpleNamespace:
    """Return a stand-in of Ansible's connection to a node with this .bashrc."""
    ssh = str(stand_in(folder / "ssh", f'{bashrc}\nexec sh -c "$2"'))
    return SimpleNamespace(
        transport="ssh",
        get_option={"ssh_executable": ssh, "host": "desk"}.get,
        _build_command=lambda *words: [ssh.encode(), *words[2:]],
    )


def tree(folder: Path) -> dict[str, tuple]:
    """Return everything below a folder: kind and mode, owner, group, content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        held = os.readlink(path) if path.is_symlink() else path.is_file() and path.read_bytes()
        found[str(path)] = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, held)
    return found
