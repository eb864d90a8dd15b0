"""Explanations for errors of OpenSSH, sudo and Ansible, with what to do about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hearth_controller.base.node_program import SHELL_ENDS

_CHANGED = re.compile(r"Host key for (?P<name>\S+) has changed")
_PINNED = re.compile(r"Offending \S+ key in (?P<file>.+):\d+")

_NO_RESULT = "Module result deserialization failed"

# Patterns of error messages, with explanations; braces refer to named groups of the pattern.
_MEANINGS = (
    (
        r"Host key verification failed",
        "its host key is not pinned yet; `hearth provision` shows and pins it",
    ),
    (
        # Ansible hides what ssh says where it enters a password.
        r"because Host Key checking is enabled",
        "its host key is not the pinned one, or none is pinned yet; `hearth provision` shows "
        "the key, pins it or says what to do",
    ),
    (
        r"(?P<user>[^\s@]+)@\S+: Permission denied \((?P<ways>[^)]*)\)",
        "the login as {user} was refused (offered: {ways}). Is the user right? Without a key on "
        "the machine, add -k, which asks for the password, or set ansible_password in the "
        "inventory, vaulted. With the key on the machine, its sshd ignores it where others may "
        "write to the home or ~/.ssh; there: chmod go-w ~ ~/.ssh",
    ),
    (
        r"(?i)your account has expired",
        "the user's account has expired; as root on the machine: chage -E -1 USER",
    ),
    (
        r"(?i)your password has expired|password change required|changing password for|"
        r"(must|required to) change your password",
        "the user's password has expired; log in on the machine and set a new one with `passwd`",
    ),
    (
        r"Incorrect sudo password|Sorry, try again",
        "sudo refused the password; give the right one with -K or as ansible_become_password",
    ),
    (
        r"Missing sudo password|sudo: a password is required",
        "sudo wants a password; add -K, which asks for it, or set ansible_become_password in the "
        "inventory, vaulted",
    ),
    (
        r"(?i:user )?(?P<user>\S+) is not (in the sudoers file|allowed to (run|execute))",
        "{user} may not use sudo; as root on the machine: adduser {user} sudo",
    ),
    (
        r"sudo: (command )?not found",
        "there is no sudo; as root on the machine: apt-get install sudo, then adduser USER sudo",
    ),
    (r"failed to resolve remote temporary directory", SHELL_ENDS),
    (
        r"Failed to create temporary directory\..*exited with result (?P<status>\d+)",
        "no folder could be made in the user's home (status {status}). Either the disk is full or "
        f"the home is not writable, or {SHELL_ENDS}",
    ),
    (
        r"The module interpreter '(?P<python>[^']+)' was not found",
        "there is no Python at {python}; on the machine: sudo apt-get install python3",
    ),
)


def explain(message: str) -> str:
    """Return the explanation of a message, or the message itself if it is unknown."""
    if changed := _CHANGED.search(message):
        pinned = _PINNED.search(message)
        file = f" in {pinned['file']}" if pinned else ""
        return (
            f"the host key of {changed['name']} is not the pinned one{file}; "
            "`hearth provision` shows both and says what to do"
        )
    for pattern, meaning in _MEANINGS:
        if found := re.search(pattern, message):
            parts = {name: text or "" for name, text in found.groupdict().items()}
            return meaning.format(**parts)
    return message


def describe_failure(result: Mapping[str, Any]) -> str:
    """Return the explained message of a failed or unreachable result; '' if it has none."""
    message = str(result.get("msg") or "").strip()
    errors = str(result.get("module_stderr") or result.get("stderr") or "").strip()
    if _NO_RESULT in message and not errors:
        # On a terminal the machine says it where the result of a module should be.
        printed = str(result.get("module_stdout") or "")
        if (meaning := explain(printed)) != printed:
            return meaning
    if _NO_RESULT in message and not errors and (shell := _login_shell(result)):
        return shell
    if errors and errors not in message:
        message = f"{message}\n{errors}" if message else errors
    return explain(message.removeprefix("Task failed: "))


def _login_shell(result: Mapping[str, Any]) -> str:
    """Return the fault of the login shell that kept a module from its result, or ''."""
    *printed, last = str(result.get("module_stdout") or "").strip().splitlines() or [""]
    if last.startswith("{"):
        first = next((line for line in printed if line.startswith("{")), "")
        return first and (
            f"its login shell prints {first!r} before the result of a command. Let the user's "
            "~/.bashrc and ~/.profile on the machine print only to a terminal, or nothing"
        )
    killed = result.get("rc", 0) > 128
    return "" if killed else SHELL_ENDS
