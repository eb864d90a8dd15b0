"""How all of it stands, in one word: for people, programs and the shell. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Verdict = Literal["good", "degraded", "broken"]

EXIT: dict[Verdict, int] = {"good": 0, "degraded": 1, "broken": 2}
"""The exit status of a verdict."""

MARKS: dict[Verdict, str] = {"good": "✓", "degraded": "!", "broken": "✗"}
"""What stands in front of a line of such a verdict."""


def overall(broken: Collection[object], degraded: Collection[object]) -> Verdict:
    """Return the verdict where these things are broken and degraded."""
    return "broken" if broken else "degraded" if degraded else "good"
