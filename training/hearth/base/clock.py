"""A clock for spans of time; and local times, with their zone's changes of daylight saving.

Those are read, typed by a person and shown to one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime
from zoneinfo import ZoneInfo

_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
_DATE = re.compile(rf"(\d{{4}}-\d\d-\d\d)[ T]{_CLOCK.pattern}")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(hours?|h|minutes?|min|m)")
_DAY = timedelta(days=1)


def boot_clock() -> float:
    """Return monotonic seconds that also count while the machine is suspended."""
    return clock_gettime(CLOCK_BOOTTIME)


def local_time(
    environment: Mapping[str, str] = os.environ, zone_file: Path = Path("/etc/localtime")
) -> datetime:
    """Return the time now, aware of the zone of this machine or of TZ."""
    return datetime.now(_zone(environment.get("TZ"), zone_file))


def time_of(text: str, now: datetime) -> datetime:
    """Return the time that a person means by `07:00` (the next one) or `2026-11-27 06:30`.

    Both are local times in the zone of `now`, which must be aware. If clocks show a time twice, as
    daylight saving ends, the first one after `now` counts; one that they skip is as long after
    midnight as on other days.

    Raises `ValueError` if it is neither, or has passed.
    """
    given, today = text.strip(), now.date()
    found = _DATE.fullmatch(given) or _CLOCK.fullmatch(given)
    try:
        if not found:
            raise ValueError("neither")
        dated = len(found.groups()) > 2
        days = [date.fromisoformat(found[1])] if dated else [today + _DAY * n for n in range(3)]
    except ValueError as error:
        raise ValueError(f"{text!r} is no time such as 23:00 or 2026-11-27T06:30") from error
    hour, minute = map(int, found.groups()[-2:])
    # Aware times of one zone compare by the clock on the wall, which may go back.
    earliest = now.astimezone(UTC)
    for day in days:
        for at in _instants(datetime.combine(day, time(hour, minute)), now.tzinfo):
            if at > earliest:
                return at.astimezone(now.tzinfo)
    raise ValueError(f"{given} has passed; leave out the date for the next {hour:02}:{minute:02}")


def _instants(local: datetime, zone: tzinfo | None) -> list[datetime]:
    """Return the UTC instants of a local time: two if clocks show it twice that night."""
    folded = (local.replace(fold=fold, tzinfo=zone).astimezone(UTC) for fold in (0, 1))
    shown = [at for at in folded if at.astimezone(zone).replace(tzinfo=None, fold=0) == local]
    return sorted({*shown}) or [local.replace(tzinfo=zone).astimezone(UTC)]


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


def when(at: datetime, now: datetime) -> str:
    """Format a time for people in the zone of `now`: with its date if it is a day away or more."""
    own = at.astimezone(now.tzinfo)
    near = abs(at.timestamp() - now.timestamp()) < _DAY.total_seconds()
    return f"{own:%H:%M}" if near else f"{own:%Y-%m-%d %H:%M}"


def _zone(name: str | None, zone_file: Path) -> tzinfo | None:
    """Return the zone of a TZ variable or of the system; of the present offset if it is unknown."""
    with suppress(OSError, ValueError, KeyError):
        if name:
            return ZoneInfo(name.removeprefix(":"))
        with zone_file.open("rb") as file:
            return ZoneInfo.from_file(file, key="local")
    return datetime.now().astimezone().tzinfo
