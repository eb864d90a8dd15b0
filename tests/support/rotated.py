"""Long tests: a default call of scripts/test plays each on one day of the week.

The day of a test is a hash of its name, so that no other test can move it. HEARTH_SEED, the number
of the day, repeats a day; HEARTH_ALL=1 plays every test.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

SEED = int(os.environ.get("HEARTH_SEED") or time.time() // 86400)
ALL = bool(os.environ.get("HEARTH_ALL"))
DAYS = 7
# Of 10,000 numbers, the one with the most even days for the tests of November 2026.
_SALT = 5533
_Thing = TypeVar("_Thing")


def in_turn(*cases: Any) -> list[Any]:
    """Return parameters of a test, each played on a day of its own.

    A case is a tuple of the values of several parameters, or the value of one.
    """
    every = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*case, marks=pytest.mark.rotated) for case in every]


def day_of(name: str) -> int:
    """Return the day of the week, from 0 to 6, that plays a test or a story of tests."""
    return int.from_bytes(hashlib.sha256(f"{_SALT} {name}".encode()).digest()[:8]) % DAYS


def waits(item: pytest.Item) -> bool:
    """Return whether another day plays this test.

    Tests that tell one story share a day: `rotated("the story")`.
    """
    marker = item.get_closest_marker("rotated")
    if marker is None:
        return False
    return day_of(marker.args[0] if marker.args else item.nodeid) != SEED % DAYS


def of_today(things: Sequence[_Thing], count: int, day: int = SEED) -> list[_Thing]:
    """Return as many of these things as a day plays.

    Each thing has its turn before any comes again.
    """
    first = day * count % len(things)
    return [*things[first:], *things[:first]][:count]


def of_this_week(things: Sequence[_Thing], count: int) -> list[_Thing]:
    """Return as many of these things as a week plays."""
    return of_today(things, count, SEED // DAYS)
