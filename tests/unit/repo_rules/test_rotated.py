"""The days on which tests that take long are played."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.rotated import DAYS, day_of_each, of_other_days

SECONDS = st.dictionaries(st.text("abc", max_size=4), st.floats(1, 100), min_size=1)


@given(SECONDS, st.integers(0, 100_000))
def test_in_a_week_each_is_played_once(seconds, seed):
    played = [set(seconds) - of_other_days(seconds, seed + day) for day in range(DAYS)]
    assert sorted(seconds) == sorted(name for day in played for name in day)


@given(SECONDS)
def test_no_day_is_longer_than_another_by_more_than_one_test(seconds):
    total = [0.0] * DAYS
    for name, day in day_of_each(seconds).items():
        total[day] += seconds[name]
    assert max(total) - min(total) <= max(seconds.values()) + 1e-9


def test_those_that_take_equally_long_have_their_days_in_turn():
    names = "abcdefghijklmno"
    days = day_of_each(dict.fromkeys(names, 10.0))
    assert [days[name] for name in names] == [number % DAYS for number in range(len(names))]
