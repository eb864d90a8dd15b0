"""Messages about ranks that have slowed down and ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Sequence

_NOTEWORTHY = 0.1
"""Part by which a rank must differ from what was measured of it to be remarked on."""

_HOLDS_UP = 1.5
"""So many times as long as the others, on average, a rank must compute to be one they wait for."""

_AS_SLOW = 0.9
"""Part of the slowest rank's time from which another one counts as slow as it is."""


def has_changed(slowness: float) -> bool:
    """Return whether a rank takes so much more or less time than was measured that it is news."""
    return abs(slowness - 1) > _NOTEWORTHY


def moves(
    before: Sequence[int], after: Sequence[int], slowness: Sequence[float], nodes: Sequence[str]
) -> str:
    """Return the words that tell who takes more or fewer rows from now on, and why.

    All by rank: its rows before and after, how many times as long as was measured it takes now, and
    the name of its node.
    """
    changed = [
        f"{node} {was} → {now} rows"
        + (f" (at {1 / slow:.0%} of its measured speed)" if has_changed(slow) else "")
        for node, was, now, slow in zip(nodes, before, after, slowness, strict=True)
        if was != now
    ]
    return f"follows the machines: {', '.join(changed)}"


def waited_for(
    compute_seconds: Sequence[float], tokens: Sequence[float], nodes: Sequence[str]
) -> str:
    """Return the nodes that compute while the others wait for them; nothing where it is even.

    By rank: how long it computed before the exchange, how many tokens (or how many a second), and
    the name of its node. A rank that has nothing to do waits too, but not because another is slow.
    """
    ranks = zip(compute_seconds, tokens, nodes, strict=True)
    busy = [(time, node) for time, count, node in ranks if count]
    longest = max((time for time, _ in busy), default=0.0)
    slow = {node: None for time, node in busy if time >= _AS_SLOW * longest}
    others = [time for time, _ in busy if time < _AS_SLOW * longest]
    if not others or longest < _HOLDS_UP * sum(others) / len(others):
        return ""
    return ", ".join(slow)
