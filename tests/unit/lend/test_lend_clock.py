"""Times that a person types, on nights that skip an hour or have one twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from hearth.lend.clock import local_time, span_of, time_of, when

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("text", "now", "hours"),
    [
        ("07:00", "2026-11-26 23:00", 8),
        ("7:00", "2026-11-26 23:00", 8),
        ("23:00", "2026-11-26 23:00", 24),
        ("07:00", "2026-03-28 23:00", 7),  # spring: the night lacks an hour
        ("07:00", "2026-10-24 23:00", 9),  # autumn: it has one twice
        ("2026-11-27 06:30", "2026-11-26 22:30", 8),
        ("2026-11-27T06:30", "2026-11-26 22:30", 8),
    ],
)
def test_a_time_of_day_is_the_next_one(text, now, hours):
    found = time_of(text, at(now))
    assert found.astimezone(UTC) - at(now).astimezone(UTC) == timedelta(hours=hours)
    assert f"{found:%H:%M}" == f"{text[-5:].lstrip():0>5}"


@pytest.mark.parametrize(
    "text", ["24:00", "7", "seven", "2026-13-01 07:00", "2026-11-25 07:00", ""]
)
def test_what_is_no_time_or_over_is_refused(text):
    with pytest.raises(ValueError):
        time_of(text, at("2026-11-26 12:00"))


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("2h", 120), ("90m", 90), ("90 min", 90), ("1h30m", 90), ("1h 30 min", 90), ("1.5h", 90)],
)
def test_a_span_is_of_hours_and_minutes(text, minutes):
    assert span_of(text) == timedelta(minutes=minutes)


@pytest.mark.parametrize("text", ["2", "2d", "0m", "-2h", "2h then", "99999999h", ""])
def test_what_is_no_span_is_refused(text):
    with pytest.raises(ValueError, match=r"'.*' is (no span|not between)"):
        span_of(text)


def test_a_time_of_another_day_is_shown_with_its_date():
    now = at("2026-11-26 22:00")
    assert when(at("2026-11-26 23:00").astimezone(UTC), now) == "23:00"
    assert when(at("2026-11-27 07:00"), now) == "2026-11-27 07:00"


def test_the_local_time_knows_its_zones_changes(tmp_path):
    berlin = local_time({"TZ": "Europe/Berlin"})
    assert berlin.replace(month=7, day=1).utcoffset() == timedelta(hours=2)
    assert berlin.replace(month=1, day=1).utcoffset() == timedelta(hours=1)
    zones = Path("/usr/share/zoneinfo/Europe/Berlin")
    if zones.exists():
        assert local_time({}, zones).replace(month=7, day=1).utcoffset() == timedelta(hours=2)
    for unknown in ({"TZ": "CET-1CEST"}, {"TZ": "Nowhere/Town"}, {}):
        assert local_time(unknown, tmp_path / "none").tzinfo is not None
