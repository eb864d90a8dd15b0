"""Commands of the system, run without ever raising.

Standard library only: modules ship this file to machines that have no Hearth yet.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

TIMED_OUT = 124
"""Status of a command that did not end in time, as of timeout(1)."""

NOT_RUN = 127
"""Status of a command that cannot be run, as of a shell."""


def run(
    *command: str,
    seconds: float | None = 30,
    environment: Mapping[str, str] | None = None,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command in the C locale, as root's PATH finds it, or in just this `environment`.

    It never raises: the status is NOT_RUN if the command cannot be run and TIMED_OUT after a
    timeout, with the reason as error output.
    """
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=environment or os.environ | {"LC_ALL": "C", "PATH": path} | variables,
        )
    except subprocess.TimeoutExpired:
        why = f"no answer within {seconds:g} s"
        return subprocess.CompletedProcess(command, TIMED_OUT, "", why)
    except OSError as error:
        why = f"cannot be run: {error.strerror}"
        return subprocess.CompletedProcess(command, NOT_RUN, "", why)


def output(*command: str, seconds: float = 30, **variables: str) -> str:
    """Run a command and return its output; '' if it is missing, fails or times out."""
    done = run(*command, seconds=seconds, **variables)
    return done.stdout if done.returncode == 0 else ""
