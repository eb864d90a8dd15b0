"""Messages about ranks that have slowed down and ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Sequence

_NOTEWORTHY = 0.1
"""Relative change from a rank's measured speed that is worth a message."""

_HOLDS_UP = 1.5
"""Least multiple of the others' average compute time of a rank that they wait for."""

_NOTICED = 0.2
"""Part of a step that the others must wait for a rank before it is named."""

_AS_SLOW = 0.9
"""Least part of the slowest rank's time of another one that counts as equally slow."""


def has_changed(slowness: float) -> bool:
    """Return whether a rank's slowdown differs enough from 1, the measured speed, to report it."""
    return abs(slowness - 1) > _NOTEWORTHY


def moves(
    before: Sequence[int], after: Sequence[int], slowness: Sequence[float], nodes: Sequence[str]
) -> str:
    """Return a message naming the nodes that take more or fewer rows from now on, and why.

    All by rank: its rows before and after, its current time as a multiple of the measured one, and
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
    compute_seconds: Sequence[float],
    tokens: Sequence[float],
    nodes: Sequence[str],
    wait_seconds: Sequence[float] = (),
) -> str:
    """Return the names of the nodes that the others wait for; empty if all are about equally fast.

    By rank: its compute time before the exchange, its tokens (or tokens a second), the name of its
    node, and the seconds that it waited, if known: the least of them is the exchange itself, which
    no rank is to blame for. An idle rank waits too, but not because another is slow.
    """
    ranks = zip(compute_seconds, tokens, nodes, strict=True)
    busy = [(time, node) for time, count, node in ranks if count]
    longest = max((time for time, _ in busy), default=0.0)
    slow = {node: None for time, node in busy if time >= _AS_SLOW * longest}
    others = [time for time, _ in busy if time < _AS_SLOW * longest]
    if not others or longest < _HOLDS_UP * (mean := sum(others) / len(others)):
        return ""
    if longest - mean < _NOTICED * (longest + min(filter(None, wait_seconds), default=0.0)):
        return ""
    return ", ".join(slow)
