"""How long a stop waits for the ranks."""

from __future__ import annotations

_LEAST = 60.0
"""Seconds that a stop waits at least where the time of a step was measured."""

_LEAST_UNKNOWN = 900.0
"""Seconds that it waits at least where it was not; a stop that is over sooner ends sooner."""

_CHECKPOINT = 30.0
"""Seconds to write a checkpoint."""


def stop_grace(seconds: float = 0.0, measured: bool = False) -> float:
    """Return how many seconds the ranks have to end what they compute and to keep a checkpoint.

    `seconds` is what a step, or a round of steps, is known to take: all of it where it was
    `measured`, else a part of it. It may take three times as long.
    """
    return max(_LEAST if measured else _LEAST_UNKNOWN, 3 * seconds + _CHECKPOINT)
