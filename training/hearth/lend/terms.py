"""The terms on which a node lends: the inventory's lend_when, lend_hours, lend_after, lend_command.

Hours are in the node's local time. A window is a span of the clock on the wall: on the night that
skips 02:00 to 03:00 the window 02:15-02:45 does not open; on the night that has that hour twice it
opens twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from hearth.base.errors import LaunchError, did_you_mean

_WINDOW = re.compile(r"(\d{1,2}):([0-5]\d)\s*-\s*(\d{1,2}):([0-5]\d)")
_DAY = 24 * 60
_MINUTE = timedelta(minutes=1)

_FURTHEST = 50 * 60
"""Minutes within which every window opens: two days, since one night may skip it, and an hour."""


@dataclass(frozen=True)
class Hours:
    """Windows of the day as (start, end) in minutes after midnight; without any, always open.

    A window with its end before its start goes past midnight. The end itself is outside.
    """

    windows: tuple[tuple[int, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> Hours:
        """Return the hours that a text such as `22:30-07:00, 12:00-13:00` describes; '' is always.

        Raises `ValueError` with the fault.
        """
        if not text.strip():
            return cls()
        return cls(tuple(_window(part.strip()) for part in text.split(",")))

    def open_at(self, now: datetime) -> bool:
        """Return whether a window is open at the local time `now`."""
        minute = now.hour * 60 + now.minute
        return not self.windows or any(_within(minute, *window) for window in self.windows)

    def next_opening(self, now: datetime) -> datetime:
        """Return the next time, `now` included, with an open window, in the zone of `now`.

        `now` must be aware. Its zone tells changes of daylight saving only if it knows them.
        """
        if self.open_at(now):
            return now
        minute = now.astimezone(UTC).replace(second=0, microsecond=0)
        for _ in range(_FURTHEST):
            minute += _MINUTE
            local = minute.astimezone(now.tzinfo)
            if self.open_at(local):
                return local
        raise AssertionError(f"{self} do not open within two days of {now}")

    def __str__(self) -> str:
        return ", ".join(f"{_clock(start)}-{_clock(end)}" for start, end in self.windows)


def _window(text: str) -> tuple[int, int]:
    found = _WINDOW.fullmatch(text)
    if not found:
        raise ValueError(f"'{text}' is no span of the day such as 23:00-07:00")
    first_hour, first_minute, last_hour, last_minute = map(int, found.groups())
    start, end = first_hour * 60 + first_minute, last_hour * 60 + last_minute
    if start >= _DAY or end > _DAY:
        raise ValueError(f"'{text}' has a time beyond the day: it ends at 24:00")
    if start == end % _DAY:
        raise ValueError(
            f"'{text}' begins and ends at the same time; for the whole day leave it out"
        )
    return start, end % _DAY


def _within(minute: int, start: int, end: int) -> bool:
    if start < end:
        return start <= minute < end
    return minute >= start or minute < end


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


IDLE = "idle"
WHENS = ("", IDLE)

TERMS = ("when", "hours", "after", "command")
"""Keys of the terms in a launch spec; in the inventory each is a variable, such as lend_when."""

_LONGEST = 24 * 60


@dataclass(frozen=True)
class Terms:
    """A node's conditions for lending; without any it lends until a person says `off`.

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
