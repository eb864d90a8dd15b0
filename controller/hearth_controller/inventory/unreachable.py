"""Explanations for errors of OpenSSH, sudo and Ansible, with what to do about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_CHANGED = re.compile(r"Host key for (?P<name>\S+) has changed")
_PINNED = re.compile(r"Offending \S+ key in (?P<file>.+):\d+")

# Patterns of error messages, with explanations; braces refer to named groups of the pattern.
_MEANINGS = (
    (
        r"Host key verification failed|because Host Key checking is enabled",
        "its host key is not pinned yet; playbooks/preflight.yml (or provision.yml) shows and pins "
        "it",
    ),
    (
        r"(?P<user>[^\s@]+)@\S+: Permission denied \((?P<ways>[^)]*)\)",
        "the login as {user} was refused (offered: {ways}). Is the user right? Without a key on "
        "the machine, add -k, which asks for the password, or set ansible_password in the "
        "inventory, vaulted",
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
            "playbooks/preflight.yml shows both and says what to do"
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
    if errors and errors not in message:
        message = f"{message}\n{errors}" if message else errors
    return explain(message.removeprefix("Task failed: "))
