"""Meanings of the words that a person types: machines, selections, yes and no. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hearth.base.errors import HearthError, did_you_mean
from hearth_controller.discover.machine import SshTarget

MACHINE = "NAME=ADDRESS[,user=LOGIN][,port=N]"


def machine_in(text: str) -> SshTarget:
    """Return the machine in a text such as `tower=192.168.1.40,user=me`. Raises `HearthError`."""
    way, *options = text.split(",")
    name, _, host = way.rpartition("=")
    given = dict(option.partition("=")[::2] for option in options)
    port = given.pop("port", "")
    user = given.pop("user", "")
    if not host or host.startswith("-") or given or not (port.isdecimal() or not port):
        raise HearthError(f"{text!r} is no machine: {MACHINE}")
    return SshTarget(host, "--machine", name, user, int(port or 0), asked=True)


def selection_in(text: str, names: Sequence[str]) -> tuple[list[int], list[SshTarget]]:
    """Return the indices of the machines that a text selects, and the machines that it adds.

    Its words are numbers from 1, names, or machines with `=`. Raises `HearthError`.
    """
    chosen: list[int] = []
    added: list[SshTarget] = []
    for word in text.replace(", ", " ").split():
        if "=" in word:
            added.append(machine_in(word))
        elif word in names:
            chosen.append(names.index(word))
        elif word.isdecimal() and 1 <= int(word) <= len(names):
            chosen.append(int(word) - 1)
        else:
            raise HearthError(f"there is no machine {word}{did_you_mean(word, names)}")
    if not chosen and not added:
        raise HearthError(f"no machine was chosen; name yours, also by --machine: {MACHINE}")
    return list(dict.fromkeys(chosen)), added


def yes_in(text: str) -> bool:
    """Return whether a text means yes. Raises `HearthError` for one that is neither yes nor no."""
    if (word := text.lower()) not in ("y", "yes", "on", "n", "no", "off"):
        raise HearthError("answer y or n")
    return word in ("y", "yes", "on")


def one_of(text: str, choices: Sequence[str]) -> str:
    """Return the choice that a text is. Raises `HearthError`."""
    if text not in choices:
        raise HearthError(f"{text!r} is none of {', '.join(choices)}{did_you_mean(text, choices)}")
    return text
