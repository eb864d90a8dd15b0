"""The local time, with its zone's changes of daylight saving, and times that a person types."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DATE = re.compile(rf"(\d{{4}}-\d\d-\d\d)[ T]{_CLOCK.pattern}")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(hours?|h|minutes?|min|m)")
_DAY = timedelta(days=1)


def local_time(
    environment: Mapping[str, str] = os.environ, zone_file: Path = Path("/etc/localtime")
) -> datetime:
    """Return the time now, aware of the zone of this machine or of TZ."""
    return datetime.now(_zone(environment.get("TZ"), zone_file))


def time_of(text: str, now: datetime) -> datetime:
    """Return the time that a person means by `07:00` (the next one) or `2026-11-27 06:30`.

    Raises `ValueError` if it is neither, or is not after `now`.
    """
    if found := _CLOCK.fullmatch(text.strip()):
        hour, minute = map(int, found.groups())
        today = now.replace(hour=hour, minute=minute, second=0, microsecond=0, fold=0)
        # Aware times of one zone compare by the clock on the wall, which may go back.
        there = [each.astimezone(UTC) for each in (today, today + _DAY)]
        return next(each for each in there if each > now).astimezone(now.tzinfo)
    if not (found := _DATE.fullmatch(text.strip())):
        raise ValueError(f"'{text}' is no time such as 07:00 or 2026-11-27 06:30")
    day = datetime.fromisoformat(found[1])
    time = day.replace(hour=int(found[2]), minute=int(found[3]), tzinfo=now.tzinfo)
    if time.astimezone(UTC) <= now.astimezone(UTC):
        raise ValueError(f"'{text}' is over")
    return time


def span_of(text: str) -> timedelta:
    """Return the span that a person means by `2h`, `90 min` or `1h 30m`.

    Raises `ValueError` if it is none, or no longer than nothing.
    """
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip():
        raise ValueError(f"'{text}' is no span of time such as 2h or 90m")
    span = sum(
        (
            timedelta(**{"hours" if unit.startswith("h") else "minutes": float(number)})
            for number, unit in parts
        ),
        timedelta(),
    )
    if not span or span > 366 * _DAY:
        raise ValueError(f"'{text}' is not between a minute and a year")
    return span


def when(time: datetime, now: datetime) -> str:
    """Format a time for people in the zone of `now`: its hour and minute, or its date as well."""
    own = time.astimezone(now.tzinfo)
    return f"{own:%H:%M}" if own.date() == now.date() else f"{own:%Y-%m-%d %H:%M}"


def _zone(name: str | None, zone_file: Path) -> tzinfo | None:
    """Return the zone of a TZ variable or of the system; of the present offset if it is unknown."""
    with suppress(OSError, ValueError, KeyError):
        if name:
            return ZoneInfo(name.removeprefix(":"))
        with zone_file.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    return datetime.now().astimezone().tzinfo
