"""A node's terms: read from a launch spec, with all faults at once, by the inventory's names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.facts import refuses

from hearth.base.errors import LaunchError
from hearth.lend.terms import Hours, Terms, faults


def test_terms_are_read_from_a_launch_spec():
    terms = Terms.of({"when": "idle", "hours": "23:00-07:00", "after": 2, "command": " true "})
    assert terms == Terms("idle", Hours(((1380, 420),)), 2.0, "true")


def test_a_node_without_terms_lends_until_a_person_says_off():
    assert Terms.of({}) == Terms()
    assert Terms.of({"when": "", "hours": "", "after": 5, "command": ""}) == Terms()


def test_all_faults_come_at_once_and_name_the_variable():
    given = {
        "when": "idel",
        "hours": "23:00-07:00, noon",
        "after": -1,
        "command": "a\nb",
        "often": 1,
    }
    found = faults(given)
    assert [each.partition(":")[0] for each in found] == [
        *("lend_often", "lend_when", "lend_hours", "lend_after", "lend_command")
    ]
    assert "did you mean 'idle'" in found[1]
    assert "'noon'" in found[2]
    with refuses(LaunchError, *found):
        Terms.of(given)


@pytest.mark.parametrize("after", ["soon", None, float("nan"), 1e9, [5]])
def test_a_quiet_time_is_a_number_of_minutes(after):
    assert faults({"after": after})[0].startswith("lend_after: must be minutes from 0 to 1440")


@pytest.mark.parametrize("hours", [1380, None, ["23:00-07:00"]])
def test_hours_that_are_no_text_are_refused(hours):
    assert faults({"hours": hours})[0].startswith("lend_hours: ")


BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
MINUTE = timedelta(minutes=1)

# Nights with a change of daylight saving in both zones, and a day without any.
STARTS = [
    datetime(2026, 3, 28, tzinfo=UTC),
    datetime(2026, 10, 24, tzinfo=UTC),
    datetime(2026, 3, 7, tzinfo=UTC),
    datetime(2026, 10, 31, tzinfo=UTC),
    datetime(2026, 6, 1, tzinfo=UTC),
]
clocks = st.integers(0, 24 * 60 - 1)
windows = st.tuples(clocks, clocks).filter(lambda window: window[0] != window[1])
times = st.builds(
    lambda start, seconds, zone: (start + timedelta(seconds=seconds)).astimezone(zone),
    st.sampled_from(STARTS),
    st.integers(0, 3 * 24 * 3600),
    st.sampled_from([BERLIN, NEW_YORK]),
)


def at(text: str, zone: ZoneInfo = BERLIN) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone)


@pytest.mark.parametrize(
    ("hours", "time", "is_open"),
    [
        ("23:00-07:00", "2026-11-26 23:00", True),
        ("23:00-07:00", "2026-11-27 06:59", True),
        ("23:00-07:00", "2026-11-27 07:00", False),
        ("23:00-07:00", "2026-11-27 22:59", False),
        ("22:30-07:00, 12:00-13:00", "2026-11-27 12:30", True),
        ("22:30-07:00, 12:00-13:00", "2026-11-27 13:00", False),
        ("18:00-24:00", "2026-11-27 23:59", True),
        ("18:00-24:00", "2026-11-28 00:00", False),
        ("", "2026-11-28 12:00", True),
    ],
)
def test_a_window_is_open_from_its_start_up_to_its_end(hours, time, is_open):
    assert Hours.parse(hours).open_at(at(time)) == is_open


@given(st.lists(windows, min_size=1, max_size=4), times)
def test_hours_are_open_where_one_of_their_windows_is(given_windows, time):
    alone = [Hours((window,)).open_at(time) for window in given_windows]
    assert Hours(tuple(given_windows)).open_at(time) == any(alone)


@given(windows, times)
def test_a_window_and_the_rest_of_the_day_take_turns(window, time):
    start, end = window
    assert Hours((window,)).open_at(time) != Hours(((end, start),)).open_at(time)


@given(st.lists(windows, min_size=1, max_size=3), times)
def test_the_next_opening_is_open_and_nothing_before_it_is(given_windows, time):
    hours = Hours(tuple(given_windows))
    opening = hours.next_opening(time)
    assert hours.open_at(opening)
    assert opening.utcoffset() == opening.astimezone(UTC).astimezone(time.tzinfo).utcoffset()
    minute = time.astimezone(UTC)
    while minute < opening.astimezone(UTC):
        assert not hours.open_at(minute.astimezone(time.tzinfo))
        minute += MINUTE
    assert opening.astimezone(UTC) - time.astimezone(UTC) <= timedelta(hours=50)


@given(st.lists(windows, min_size=0, max_size=4))
def test_hours_read_what_they_write(given_windows):
    hours = Hours(tuple(given_windows))
    assert Hours.parse(str(hours)) == hours


@pytest.mark.parametrize(
    ("zone", "spring", "autumn"), [(BERLIN, "03-28", "10-24"), (NEW_YORK, "03-07", "10-31")]
)
def test_a_night_lends_an_hour_less_in_spring_and_one_more_in_autumn(zone, spring, autumn):
    hours = Hours.parse("23:00-07:00")

    def lent(day: str) -> int:
        begin = at(f"2026-{day} 12:00", zone).astimezone(UTC)
        minutes = (begin + number * MINUTE for number in range(24 * 60))
        return sum(hours.open_at(minute.astimezone(zone)) for minute in minutes)

    assert lent(spring) == 7 * 60
    assert lent(autumn) == 9 * 60
    assert lent("06-01") == 8 * 60


def test_a_window_in_the_hour_that_spring_skips_comes_the_day_after():
    opening = Hours.parse("02:10-02:50").next_opening(at("2026-03-29 01:59"))
    assert opening == at("2026-03-30 02:10")


def test_a_window_in_the_hour_that_autumn_has_twice_comes_twice():
    hours = Hours.parse("02:10-02:50")
    first = hours.next_opening(at("2026-10-25 01:00"))
    second = hours.next_opening(at("2026-10-25 02:55"))
    assert second.astimezone(UTC) - first.astimezone(UTC) == timedelta(hours=1)


@pytest.mark.parametrize(
    "text",
    ["23-7", "25:00-07:00", "23:00", "23:60-07:00", "07:00-07:00", "00:00-24:00", "a,b", ","],
)
def test_what_is_no_span_of_the_day_is_refused_by_name(text):
    with pytest.raises(ValueError, match=r"'.*' (is no span|has a time|begins and ends)"):
        Hours.parse(text)
