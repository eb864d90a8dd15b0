"""The overall verdict: good, degraded or broken, with its mark and exit status. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Verdict = Literal["good", "degraded", "broken"]

EXIT: dict[Verdict, int] = {"good": 0, "degraded": 1, "broken": 2}
"""The exit status of a verdict."""

MARKS: dict[Verdict, str] = {"good": "✓", "degraded": "!", "broken": "✗"}
"""The mark in front of a line with this verdict."""


def overall(broken: Collection[object], degraded: Collection[object]) -> Verdict:
    """Return the verdict for lists of broken and degraded things."""
    return "broken" if broken else "degraded" if degraded else "good"
