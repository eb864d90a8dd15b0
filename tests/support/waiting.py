"""Timeouts of tests: bounds that end a hang and say nothing of speed."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

HANG = 900  # seconds; on two busy cores what takes 30 alone has taken 110, and a play may take 180


def until(condition: Callable[[], object], seconds: float = HANG) -> None:
    """Wait for a condition; a missing file counts as not fulfilled.

    Give seconds only where Hearth promises them.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError, ValueError, StopIteration):
            if condition():
                return
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")
