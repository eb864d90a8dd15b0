"""How Hearth says things to people, wherever it says them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a time span as a person says it: 45 s, 3 min 20 s, 2 h 5 min."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"
