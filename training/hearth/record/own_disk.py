"""The disk of a rank's node: while it takes no writes, the run goes on if another node's does."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from safetensors import SafetensorError

from hearth.base.errors import CheckpointError
from hearth.base.files import DISK_FULL

DISK_ERRORS = (OSError, SafetensorError)
"""Errors raised by writing to a disk that is full, read-only or gone."""

WRITES = 1
"""State of a disk that takes what the run writes; the number of an error is added to it.

A rank that keeps no files has the state 0.
"""


class OwnDisk:
    """The writes of one rank, and which of them fail.

    `keeps`: whether the rank writes the files that every node keeps.

    Attributes:
        spares: whether another node may write what this one cannot, so that a write may fail.
    """

    def __init__(self, keeps: bool = True, spares: bool = False) -> None:
        self._keeps, self.spares = keeps, spares
        self._failing: dict[str, Exception] = {}

    @contextmanager
    def spared(self, what: str) -> Iterator[None]:
        """Note whether the block can write `what`; a failure is raised only without another writer.

        Errors of the network, which are `OSError` too, are raised.
        """
        try:
            yield
        except (*DISK_ERRORS, CheckpointError) as error:
            if not self.spares or number_of(error) is None:
                raise
            self._failing[what] = error
        else:
            self._failing.pop(what, None)

    def fails(self, what: str = "") -> bool:
        """Return whether the last write of `what` failed; without it, that of anything."""
        return what in self._failing if what else bool(self._failing)

    @property
    def state(self) -> int:
        """The number that the other ranks get: 0, WRITES, or WRITES and the error's number."""
        if not self._failing:
            return WRITES if self._keeps else 0
        return WRITES + (number_of(next(iter(self._failing.values()))) or errno.EIO)

    def agree(self, states: Sequence[int]) -> None:
        """Take note of the `states` of all ranks in the group.

        Raises what failed here if no node writes any more.
        """
        others = sum(state == WRITES for state in states) - (self.state == WRITES)
        self.spares = others > 0
        if self._failing and not self.spares:
            raise next(iter(self._failing.values()))


def reason(state: int) -> str:
    """Return why a disk in this state takes no writes; "" if it does."""
    return os.strerror(state - WRITES) if state > WRITES else ""


def number_of(error: BaseException) -> int | None:
    """Return the system's number of a disk's error; None for an error of anything else.

    safetensors raises an error of its own, with the system's message inside.
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return None
    if isinstance(error, CheckpointError):
        return number_of(error.__cause__) if error.__cause__ else None
    if isinstance(error, OSError):
        return error.errno or errno.EIO
    said = (number for number in DISK_FULL if os.strerror(number) in str(error))
    return next(said, errno.EIO) if isinstance(error, SafetensorError) else None
