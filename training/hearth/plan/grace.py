"""How long a stop waits for the ranks."""

from __future__ import annotations

_LEAST = 60.0
"""Seconds that a stop waits at least where the time of a step was measured."""

_LEAST_UNKNOWN = 900.0
"""Seconds that it waits at least where it was not; a stop that is over sooner ends sooner."""

_CHECKPOINT = 30.0
"""Seconds to write a checkpoint, beside those that its bytes take."""

_OF_LEARNED = 5
"""Times that a checkpoint is as large as what learns, at most: the weights, two numbers of AdamW
for each, the momentum of rounds of local steps, and the weights that were best so far."""

_WRITTEN = 50e6
"""Bytes a second that are written, hashed and brought to the disk: a slow disk's, not measured."""


def stop_grace(
    seconds: float = 0.0, measured: bool = False, learned: int = 0, judging: float = 0.0
) -> float:
    """Return how many seconds the ranks have to end what they compute and to keep a checkpoint.

    Args:
        seconds: what a step, or a round of steps, is known to take. It may take three times as
            long.
        measured: whether that is all of it; else it is a part.
        learned: bytes of the weights that learn, as a checkpoint holds them; 0 if not known.
        judging: seconds that a held-out evaluation takes, which a stop does not cut short; reckoned
            at the speed of training, which is slower.
    """
    checkpoint = _CHECKPOINT + _OF_LEARNED * learned / _WRITTEN
    return max(_LEAST if measured else _LEAST_UNKNOWN, 3 * seconds + judging + checkpoint)
