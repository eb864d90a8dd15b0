"""Calls of OpenSSH by the controller outside Ansible's own connection."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

# A single attempt on a new connection, without prompts and with errors as the only output.
_ALONE = {"BatchMode": "yes", "ControlPath": "none", "LogLevel": "ERROR"}


def command(option: Callable[[str], Any], first: Mapping[str, str]) -> list[str]:
    """Return the ssh command of Ansible's connection, without the host.

    `option` returns an option of the ssh connection plugin by name. `first` are ssh options that
    override all others, since ssh uses the first value of an option.
    """
    parts = [str(option("ssh_executable"))]
    for name, value in {**_ALONE, **first}.items():
        parts += ["-o", f"{name}={value}"]
    for name in ("ssh_args", "ssh_common_args", "ssh_extra_args"):
        parts += shlex.split(option(name) or "")
    if key := option("private_key_file"):
        parts += ["-i", os.path.expanduser(key)]
    if port := option("port"):
        parts += ["-p", str(port)]
    if user := option("remote_user"):
        parts += ["-l", str(user)]
    return parts


def attempt(command: list[str], seconds: float) -> str:
    """Run ssh; return the last line of its error, or '' on success."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {seconds:g} s"
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
