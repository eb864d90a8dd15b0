"""The time at which a run is to start, as a person types it."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import assert_names, refuses

from hearth.base.errors import ConfigError
from hearth_controller.launch.request import requested
from hearth_controller.launch.start_time import start_time

BERLIN = ZoneInfo("Europe/Berlin")


def start(text: object, now: str) -> str:
    """Return the start in local time, with its distance from UTC; `now` is local time."""
    at = start_time(text, datetime.fromisoformat(now).replace(tzinfo=BERLIN), BERLIN)
    assert at.tzinfo is UTC
    return at.astimezone(BERLIN).isoformat(" ", "minutes")


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
        # It begins: the night is an hour shorter, and there is no 02:30.
        ("07:00", "2027-03-27 23:00", "2027-03-28 07:00+02:00"),
        ("02:30", "2027-03-27 23:00", "2027-03-28 03:30+02:00"),
        ("2027-03-28 02:30", "2027-03-27 23:00", "2027-03-28 03:30+02:00"),
    ],
)
def test_a_time_is_that_of_the_clocks_of_the_house(typed, now, expected):
    assert start(typed, now) == expected


@given(
    now=st.datetimes(datetime(2026, 1, 1), datetime(2028, 1, 1), timezones=st.just(BERLIN)),
    clock=st.times(),
)
def test_a_time_of_day_is_its_next_occurrence_within_a_day_of_any_length(now, clock):
    at = start_time(f"{clock:%H:%M}", now.astimezone(UTC), BERLIN)
    assert 0 < (at - now.astimezone(UTC)).total_seconds() <= 25 * 3600
    shown = at.astimezone(BERLIN)
    assert (shown.hour, shown.minute) in (
        (clock.hour, clock.minute),
        (clock.hour + 1, clock.minute),
    )


@pytest.mark.parametrize(
    ("typed", "facts"),
    [
        ("25:00", ["'25:00'", "23:00"]),
        ("tonight", ["'tonight'", "23:00", "2026-11-27T06:30"]),
        ("2026-11-27", ["'2026-11-27'", "2026-11-27T06:30"]),  # what is left of it unquoted
        ("2026-11-27T06:30Z", ["'2026-11-27T06:30Z'", "2026-11-27T06:30"]),  # of another zone
        ("2026-11-27 06:30+05:00", ["+05:00'", "2026-11-27T06:30"]),
        (1380, ["1380"]),  # YAML's 23:00 without quotes
        ("2026-11-25 23:00", ["2026-11-25 23:00", "has passed", "23:00"]),
    ],
)
def test_what_is_no_time_or_has_passed_is_refused(typed, facts):
    with refuses(ConfigError, "-e at", *facts):
        start(typed, "2026-11-26 21:30")


def asked(tmp_path, **typed):
    return requested({"model": "smollm2-135m", **typed}, tmp_path, [], ["desk"], False)


def test_a_run_with_a_time_or_behind_others_is_one_for_the_queue(tmp_path):
    assert asked(tmp_path)["queue"] == {}
    assert asked(tmp_path, queue="false")["queue"] == {}
    queue = asked(tmp_path, queue="true")["queue"]
    assert queue["at"] is None
    assert datetime.fromisoformat(queue["submitted"]).tzinfo
    at = asked(tmp_path, at="23:00")["queue"]["at"]
    assert datetime.fromisoformat(at) > datetime.now(UTC)
    (finding,) = asked(tmp_path, at="soon", queue="yes")["findings"]
    assert_names(finding, "-e at", "'soon'")
    (finding,) = asked(tmp_path, queue="last")["findings"]
    assert_names(finding, "-e queue", "'last'", "true or false")


@pytest.mark.parametrize("queue", [{"queue": "true"}, {"at": "23:00"}])
def test_two_runs_of_a_queue_never_meet_at_the_same_port(tmp_path, queue):
    (finding,) = asked(tmp_path, meeting_port=4444, **queue)["findings"]
    assert_names(finding, "-e meeting_port", "same port", "leave it out")
    assert asked(tmp_path, meeting_port=0, **queue)["findings"] == []
    assert asked(tmp_path, meeting_port=4444, queue="false")["findings"] == []
