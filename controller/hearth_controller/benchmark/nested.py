"""The plays that a benchmark starts: their command line and their output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from hearth.config import Settings

_NOT_HANDED_ON = frozenset({*Settings.model_fields, "train", "config", "nodes", "steps", "repeat"})
"""Variables that a benchmark sets for its plays itself."""

_WORDS = {
    "private_key_file": "--private-key",
    "remote_user": "--user",
    "ssh_common_args": "--ssh-common-args",
    "ssh_extra_args": "--ssh-extra-args",
    "connection_password_file": "--connection-password-file",
}
_LISTS = {
    "inventory": "-i",
    "vault_ids": "--vault-id",
    "vault_password_files": "--vault-password-file",
}
_ASKING = {
    "ask_pass": "-k: a benchmark starts plays that cannot ask for a password; `hearth provision "
    "--tags ssh` lets your key in",
    "ask_vault_pass": "-J: a benchmark starts plays that cannot ask for a password; take "
    "--vault-password-file",
}


def forwarded(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables after `-e` that concern roles and not the measurement."""
    return {
        name: value
        for name, value in typed.items()
        if name not in _NOT_HANDED_ON and name != "_benchmark_warm_up"
    }


def prompting_options(given: Mapping[str, Any]) -> list[str]:
    """Return objections to Ansible options that prompt for a password: the plays run unattended."""
    return [why for name, why in _ASKING.items() if given.get(name)]


def connection_options(given: Mapping[str, Any]) -> list[str]:
    """Return the connection options of Ansible's command line."""
    options = []
    for name, word in _LISTS.items():
        for value in given.get(name) or ():
            options += [word, str(value)]
    for name, word in _WORDS.items():
        if given.get(name):
            options += [word, str(given[name])]
    return options


def error_message(log: str) -> str:
    """Return the error message at the end of a failed play's output.

    Task lines are indented by two blanks, an error message by none, its further lines by more.
    """
    lines = [line.rstrip() for line in log.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    output = list(takewhile(_of_a_failure, reversed(lines)))[::-1]
    return "\n".join(output) or "it did not say why"


def last_output(lines: Sequence[str]) -> str:
    """Return the last output line of a running play."""
    output: Iterable[str] = (line.strip() for line in reversed(lines))
    return next((line for line in output if line), "the play starts")


def _of_a_failure(line: str) -> bool:
    return bool(line) and (not line.startswith("  ") or line.startswith("    "))
