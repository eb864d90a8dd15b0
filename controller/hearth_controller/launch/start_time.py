"""The time at which a person wants a run to start. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from hearth.base.errors import ConfigError

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d\d")


def start_time(text: object, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Return the time that a person typed as a time of day or with a date, in UTC.

    A time of day is its next occurrence after `now`. It is that of clocks in `zone`, by default
    this computer's; one that they skip in spring is as long after midnight as on other days.

    Raises:
        ConfigError: it is no time, or has passed.
    """
    given = str(text).strip()
    wanted = "23:00 or 2026-11-27T06:30 is wanted"
    if _TIME_OF_DAY.fullmatch(given):
        try:
            clock = time.fromisoformat(given.zfill(5))
        except ValueError as error:
            raise ConfigError(f"-e at: {given!r} is no time of day; {wanted}") from error
        today = now.astimezone(zone).date()
        days = (today + timedelta(days=ahead) for ahead in range(3))
        return next(at for day in days for at in _instants(day, clock, zone) if at > now)
    try:
        day, _, clock_text = given.replace("T", " ").partition(" ")
        clock = time.fromisoformat(clock_text.strip().zfill(5))
        if clock.tzinfo:
            raise ValueError("a zone")
        moments = _instants(date.fromisoformat(day), clock, zone)
    except ValueError as error:
        raise ConfigError(f"-e at: {text!r} is no time; {wanted}") from error
    for at in moments:
        if at > now:
            return at
    raise ConfigError(f"-e at: {given} has passed; leave out the date for the next {clock:%H:%M}")


def _instants(day: date, clock: time, zone: tzinfo | None) -> list[datetime]:
    """Return the moments in UTC at which clocks show a time of a day: two on one night a year."""
    local = datetime.combine(day, clock)
    found = []
    for fold in (0, 1):
        folded = local.replace(fold=fold, tzinfo=zone)
        at = folded.astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None) == local and at not in found:
            found.append(at)
    return found or [local.replace(tzinfo=zone).astimezone(UTC)]
