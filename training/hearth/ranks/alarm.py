"""Waiting on sockets that another thread can end at any time."""

from __future__ import annotations

import os
import select
import time

_LONGEST = 1e6
"""Seconds that `poll` can wait at most, roughly."""


class GroupBroken(Exception):
    """The group is over: a peer was lost, or the supervisor interrupted it."""


class Alarm:
    """Ends all waiting of one group, from any thread."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._why = ""

    def sound(self, why: str) -> None:
        """Have all that wait, now or later, raise `GroupBroken` with this reason."""
        self._why = self._why or why or "interrupted"
        os.eventfd_write(self._descriptor, 1)

    def wait(self, events: dict[int, int], seconds: float) -> list[int]:
        """Wait until one of `events`, masks of `select.poll` by descriptor, has come.

        Returns the descriptors that are ready, none after `seconds`, or 11 days.

        Raises `GroupBroken` if the alarm has sounded.
        """
        poll = select.poll()
        for descriptor, mask in events.items():
            poll.register(descriptor, mask)
        poll.register(self._descriptor, select.POLLIN)
        milliseconds = min(max(seconds, 0), _LONGEST) * 1000
        ready = [descriptor for descriptor, _ in poll.poll(milliseconds)]
        if self._descriptor in ready:
            raise GroupBroken(self._why)
        return ready

    def close(self) -> None:
        """Free the descriptor; no thread may use the alarm any more."""
        os.close(self._descriptor)


class Deadline:
    """A point in time until which something is waited for."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds until then; 0 if it has passed."""
        return max(0.0, self._end - time.monotonic())
