"""The overall verdict, with its mark and exit status. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

Verdict = Literal["good", "degraded", "refused", "broken"]
"""`refused` is wrong input, found before anything was done; the others also describe nodes."""

EXIT: dict[Verdict, int] = {"good": 0, "degraded": 1, "refused": 2, "broken": 3}
"""The exit status of a verdict, for every verb of `hearth`."""

MARKS: dict[Verdict, str] = {"good": "✓", "degraded": "!", "refused": "✗", "broken": "✗"}
"""The mark in front of a line with this verdict."""


def overall(broken: Collection[object], degraded: Collection[object]) -> Verdict:
    """Return the verdict for lists of broken and degraded things."""
    return "broken" if broken else "degraded" if degraded else "good"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of some verdicts, good if there are none."""
    return max(verdicts, key=EXIT.__getitem__, default="good")
