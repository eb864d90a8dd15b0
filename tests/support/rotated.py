"""Tests that take long, each of which one day of a week plays: the seed is the day.

HEARTH_SEED repeats a day, and HEARTH_ALL=1 plays all of them, as their bench does.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import pytest

SEED = int(os.environ.get("HEARTH_SEED") or time.time() // 86400)
ALL = bool(os.environ.get("HEARTH_ALL"))
DAYS = 7
# CPU seconds that a rotated test of a room takes, about.
_USUAL_SECONDS = {
    "tests/cluster/test_lab": 40,
    "tests/cluster": 20,
    "tests/training": 8,
    "tests/unsloth": 10,
}
_Thing = TypeVar("_Thing")


def in_turn(*cases: Any) -> list[Any]:
    """Return parameters of a test, each of which is played on a day of its own.

    A case is a tuple of the values of several parameters, or the value of one.
    """
    every = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*case, marks=pytest.mark.rotated) for case in every]


def usual_seconds(test: str) -> float:
    """Return about how long a rotated test takes, by the room in which it is."""
    return next((its for room, its in _USUAL_SECONDS.items() if test.startswith(room)), 5)


def day_of_each(seconds: Mapping[str, float]) -> dict[str, int]:
    """Divide tests over the days so that each day takes about as long.

    `seconds` is what each test takes. The longest come first, each on the day with least so far;
    tests that take equally long have their days in turn.
    """
    days, total = {}, [0.0] * DAYS
    for name in sorted(seconds, key=lambda name: (-seconds[name], name)):
        days[name] = day = total.index(min(total))
        total[day] += seconds[name]
    return days


def of_other_days(seconds: Mapping[str, float], seed: int = SEED) -> set[str]:
    """Return the tests that another day plays."""
    return {name for name, day in day_of_each(seconds).items() if day != seed % DAYS}


def of_this_week(things: Sequence[_Thing], count: int) -> list[_Thing]:
    """Return as many of these things as a week plays, in the order of the week."""
    return random.Random(SEED // DAYS).sample(things, count)


def of_today(things: Sequence[_Thing], count: int) -> list[_Thing]:
    """Return as many of these things as a day plays, in the order of the day."""
    return random.Random(SEED).sample(things, count)
