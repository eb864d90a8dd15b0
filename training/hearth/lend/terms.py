"""A node's terms of lending, as the inventory's variables lend_when, lend_hours, … state them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hearth.base.errors import LaunchError, did_you_mean
from hearth.lend.hours import Hours

IDLE = "idle"
WHENS = ("", IDLE)

TERMS = ("when", "hours", "after", "command")
"""Keys of the terms in a launch spec; in the inventory each is a variable, such as lend_when."""

_LONGEST = 24 * 60


@dataclass(frozen=True)
class Terms:
    """Conditions under which a node lends; without any it lends until a person says `off`.

    `when` is "idle" or "", `after_minutes` the quiet time before it returns, and `command` a shell
    command that says no by an exit status other than 0, "" for none.
    """

    when: str = ""
    hours: Hours = field(default_factory=Hours)
    after_minutes: float = 5.0
    command: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Terms:
        """Return the terms in a launch spec: `when`, `hours`, `after`, `command`, each optional.

        Raises `LaunchError` with all `faults`.
        """
        if found := faults(given):
            raise LaunchError(*found)
        return cls(
            when=given.get("when", ""),
            hours=Hours.parse(given.get("hours", "")),
            after_minutes=float(given.get("after", 5)),
            command=given.get("command", "").strip(),
        )


def faults(given: Mapping[str, Any]) -> list[str]:
    """Return everything wrong with terms; each finding begins with the inventory's variable."""
    found = [f"lend_{key}: there is no such variable" for key in given if key not in TERMS]
    when = given.get("when", "")
    if when not in WHENS:
        guess = did_you_mean(str(when), [IDLE])
        found.append(f"lend_when: must be '{IDLE}' or empty, not {when!r}{guess}")
    try:
        Hours.parse(str(given.get("hours", "")))
    except ValueError as error:
        found.append(f"lend_hours: {error}; several are separated by commas")
    try:
        after = float(given.get("after", 5))
    except (TypeError, ValueError):
        after = -1
    if not 0 <= after <= _LONGEST:
        found.append(
            f"lend_after: must be minutes from 0 to {_LONGEST}, not {given.get('after')!r}"
        )
    command = given.get("command", "")
    if not isinstance(command, str) or "\n" in command.strip() or "\0" in command:
        found.append("lend_command: must be one line for the shell")
    return found
