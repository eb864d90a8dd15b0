"""A node's clock, compared with the controller's. Pure."""

from __future__ import annotations

from hearth.base.text import duration

TOLERATED_SECONDS = 5.0
"""Tolerated clock difference: logs stay in order, and certificates valid."""


def skew(before: float, there: float, after: float) -> float:
    """Return the least possible lead of a node's clock in seconds, negative if it is behind.

    It was read at some moment between `before` and `after` on this computer, so a value within the
    two cannot be told apart from the duration of the request.
    """
    return max(there - after, 0.0) + min(there - before, 0.0)


def difference(seconds: float, tolerated: float = TOLERATED_SECONDS) -> str:
    """Return a clock's lead as text, '' if it is at most `tolerated` seconds either way."""
    if abs(seconds) <= tolerated:
        return ""
    side = "ahead of" if seconds > 0 else "behind"
    return f"{duration(abs(seconds))} {side} the controller's"
