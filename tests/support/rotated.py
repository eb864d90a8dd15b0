"""Tests that take long, of which each day plays some: the seed is the day.

HEARTH_SEED repeats a day, and HEARTH_ALL=1 plays all of them, as their bench does.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Sequence
from typing import TypeVar

SEED = int(os.environ.get("HEARTH_SEED") or time.time() // 86400)
ALL = bool(os.environ.get("HEARTH_ALL"))
_Thing = TypeVar("_Thing")


def of_other_days(names: Iterable[str]) -> set[str]:
    """Return two thirds of these tests: those that the next two days play."""
    return {name for number, name in enumerate(sorted(set(names)), SEED) if number % 3}


def of_today(things: Sequence[_Thing], count: int) -> list[_Thing]:
    """Return as many of these things as a day plays, in the order of the day."""
    return random.Random(SEED).sample(things, count)
