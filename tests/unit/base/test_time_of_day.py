"""Times that a person types, on nights that skip an hour or have one twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses

from hearth.base.clock import local_time, span_of, time_of, when

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("typed", "now", "expected"),
    [
        ("23:00", "2026-11-26 21:30", "2026-11-26 23:00+01:00"),
        ("6:30", "2026-11-26 21:30", "2026-11-27 06:30+01:00"),  # past midnight
        ("00:00", "2026-12-31 23:59", "2027-01-01 00:00+01:00"),
        ("21:30", "2026-11-26 21:30", "2026-11-27 21:30+01:00"),  # just now: the next one
        ("2026-11-27 06:30", "2026-11-26 21:30", "2026-11-27 06:30+01:00"),
        ("2026-11-27T06:30", "2026-11-26 21:30", "2026-11-27 06:30+01:00"),
        # Daylight saving ends: the night is an hour longer, and 02:30 comes twice.
        ("07:00", "2026-10-24 23:00", "2026-10-25 07:00+01:00"),
        ("02:30", "2026-10-24 23:00", "2026-10-25 02:30+02:00"),
        ("02:30", "2026-10-25 02:45", "2026-10-25 02:30+01:00"),
        ("2026-10-25 02:30", "2026-10-25 02:45", "2026-10-25 02:30+01:00"),
        # It begins: the night is an hour shorter, and there is no 02:30.
        ("07:00", "2027-03-27 23:00", "2027-03-28 07:00+02:00"),
        ("02:30", "2027-03-27 23:00", "2027-03-28 03:30+02:00"),
        ("2027-03-28 02:30", "2027-03-27 23:00", "2027-03-28 03:30+02:00"),
    ],
)
def test_a_time_is_that_of_the_clocks_of_the_house(typed, now, expected):
    assert time_of(typed, at(now)).isoformat(" ", "minutes") == expected


@given(
    now=st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(BERLIN)),
    clock=st.times(),
)
def test_a_time_of_day_is_its_next_occurrence_within_a_day_of_any_length(now, clock):
    found = time_of(f"{clock:%H:%M}", now)
    assert 0 < (found.astimezone(UTC) - now.astimezone(UTC)).total_seconds() <= 25 * 3600
    assert (found.hour, found.minute) in (
        (clock.hour, clock.minute),
        (clock.hour + 1, clock.minute),
    )


@pytest.mark.parametrize(
    "typed",
    [
        *("25:00", "24:00", "7", "tonight", "", "1380"),  # the last is YAML's 23:00 without quotes
        *("2026-11-27", "2026-13-01 07:00", "2026-02-30 07:00"),
        *("2026-11-27T06:30Z", "2026-11-27 06:30+05:00"),  # of another zone
    ],
)
def test_what_is_no_time_is_refused_with_an_example(typed):
    with refuses(ValueError, repr(typed), "23:00", "2026-11-27T06:30"):
        time_of(typed, at("2026-11-26 21:30"))


def test_a_date_that_has_passed_is_refused():
    with refuses(ValueError, "2026-11-25 23:00", "has passed", "the next 23:00"):
        time_of("2026-11-25 23:00", at("2026-11-26 21:30"))


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


@pytest.mark.parametrize(
    ("shown", "now", "text"),
    [
        ("2026-11-26 23:00", "2026-11-26 22:00", "23:00"),
        # Tomorrow morning, or last night, is near enough for the time of day alone.
        ("2026-11-27 06:30", "2026-11-26 23:00", "06:30"),
        ("2026-11-26 23:50", "2026-11-27 07:00", "23:50"),
        ("2026-11-28 00:30", "2026-11-26 23:00", "2026-11-28 00:30"),
        ("2026-11-26 07:00", "2026-11-27 07:00", "2026-11-26 07:00"),
        # Over the nights in which the clocks change, the time is that of its own day.
        ("2026-10-25 06:00", "2026-10-24 22:00", "06:00"),
        ("2027-03-28 07:00", "2027-03-27 21:00", "07:00"),
    ],
)
def test_times_are_those_of_a_clock_on_the_wall(shown, now, text):
    assert when(at(shown).astimezone(UTC), at(now)) == text


def test_the_local_time_knows_its_zones_changes(tmp_path):
    berlin = local_time({"TZ": "Europe/Berlin"})
    assert berlin.replace(month=7, day=1).utcoffset() == timedelta(hours=2)
    assert berlin.replace(month=1, day=1).utcoffset() == timedelta(hours=1)
    zones = Path("/usr/share/zoneinfo/Europe/Berlin")
    if zones.exists():
        assert local_time({}, zones).replace(month=7, day=1).utcoffset() == timedelta(hours=2)
    for unknown in ({"TZ": "CET-1CEST"}, {"TZ": "Nowhere/Town"}, {}):
        assert local_time(unknown, tmp_path / "none").tzinfo is not None
