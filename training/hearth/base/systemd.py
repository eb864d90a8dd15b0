"""Calls to systemd, above all to the user's own instance.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import os
import pwd
import re
import resource
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

# Ansible ships these files under a package of its own.
from .commands import run

LINGER = Path("/var/lib/systemd/linger")
"""Folder with a file named after each user whose services start at boot and survive logout."""

_ANSWER = 30.0


def has_manager() -> bool:
    """Return whether this user's systemd is available and outlasts the login."""
    if shutil.which("systemctl") is None:
        return False
    lingers = (LINGER / pwd.getpwuid(os.getuid()).pw_name).exists()
    return lingers and user_systemctl("show", "--property=Version").returncode == 0


def units_folder() -> Path:
    """Return the folder of the units of this user's systemd."""
    # Not $HOME: the systemd manager takes its home from the password database.
    return Path(pwd.getpwuid(os.getuid()).pw_dir, ".config/systemd/user")


def units_of(workspace: str | Path) -> dict[str, Path]:
    """Return the units of the runs in a workspace, by run: a unit names its launch spec there.

    Other workspaces of this user may have runs of the same names, as those of nodes that share a
    home.
    """
    spec = re.compile(re.escape(f'"{workspace}/config/') + r'([\w.-]+)\.json"')
    found = {}
    for path in sorted(units_folder().glob("hearth-*.service")):
        with suppress(OSError, ValueError):
            if named := spec.search(path.read_text(encoding="utf-8")):
                found[named[1]] = path
    return found


def user_systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `systemctl --user`."""
    return call("systemctl", "--user", *words)


def take_limit_of_units() -> None:
    """Let this process lock as much memory as a unit of this user may, if not even less.

    A login may have more: what works in it, such as NCCL over RoCE, need not work in a run's unit.
    """
    if (most := lockable_bytes()) is not None:
        _, own = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        most = most if own == resource.RLIM_INFINITY else min(most, own)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))


def lockable_bytes() -> int | None:
    """Return the bytes of memory that a unit of this user may lock; None if they are not limited.

    None, too, where the user's systemd does not answer.
    """
    done = user_systemctl("show", "--property=DefaultLimitMEMLOCK", "--value")
    said = done.stdout.strip()
    return int(said) if done.returncode == 0 and said.isdecimal() else None


def call(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of systemd; without a login session, at the manager's usual address.

    It never raises: no answer and no such command count as failure.
    """
    place = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    return run(*command, seconds=_ANSWER, XDG_RUNTIME_DIR=place)
