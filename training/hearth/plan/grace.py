"""Grace period of a stop: the time left to the ranks to end."""

from __future__ import annotations

_LEAST = 60.0
"""Minimum grace in seconds where the time of a step was measured."""

_LEAST_UNKNOWN = 900.0
"""Minimum grace in seconds where it was not; a stop that completes sooner does not wait."""

_CHECKPOINT = 30.0
"""Seconds to write a checkpoint, in addition to the time for its bytes."""

_OF_LEARNED = 5
"""Maximum size of a checkpoint relative to the trainable weights: the weights, two numbers of AdamW
for each, the momentum of rounds of local steps, and the best weights so far."""

_GATHERED = 4
"""Maximum size of what stages send for it, likewise: their weights, two numbers of AdamW for each,
and the weights again if they are the best so far."""

_SLOW_LINK = 100.0
"""Mbit/s of a slow link, assumed where none was measured."""

_WRITTEN = 50e6
"""Bytes a second that a slow disk writes, with hashing and flushing; assumed, not measured."""


def stop_grace(
    seconds: float = 0.0,
    measured: bool = False,
    learned: int = 0,
    judging: float = 0.0,
    gathering: float = 0.0,
) -> float:
    """Return the seconds that ranks get to finish their computation and write a checkpoint.

    Three times the `seconds` of a step or round are allowed; they are the full duration if
    `measured`, else only a part. `learned` are the bytes of the trainable weights (0 if unknown),
    `judging` the seconds of a held-out evaluation, which a stop does not interrupt, and `gathering`
    those in which the stages of a pipeline send each other what a checkpoint has of all of them.
    """
    checkpoint = _CHECKPOINT + _OF_LEARNED * learned / _WRITTEN
    return max(
        _LEAST if measured else _LEAST_UNKNOWN, 3 * seconds + judging + gathering + checkpoint
    )


def gather_seconds(learned: int, nodes: int, mbit: float | None) -> float:
    """Return the seconds in which all stages of a pipeline broadcast their state for a checkpoint.

    `learned` are the bytes of all trainable weights, `mbit` the slowest link between the `nodes`,
    None where it is not known. A broadcast is a tree: a node sends one copy per level at most.
    """
    copies = (nodes - 1).bit_length()
    return _GATHERED * learned * copies * 8 / ((mbit or _SLOW_LINK) * 1e6)
