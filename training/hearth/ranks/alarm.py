"""The break of a group: an alarm that any thread can sound, and malformed values of a rank."""

from __future__ import annotations

import json
import os
import select
from typing import Any

from hearth.base.errors import HearthError

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


LONGEST_VALUE = 1 << 26
"""Bytes of a value that every rank gives. The largest are checksums of all weights, under 1 MB."""

LONGEST_BYTES = 1 << 30
"""Bytes that one rank gives to all. The largest are parts of checkpoints and records of metrics."""


def to_bytes(value: Any) -> bytes:
    """Return a value as JSON. Lone surrogates, which have no UTF-8, become question marks."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def from_bytes(content: bytes, sender: str) -> Any:
    """Return the value in JSON that a rank has sent. Raises `GroupBroken` if it is malformed."""
    try:
        value = json.loads(content.decode())
        json.dumps(value, ensure_ascii=False).encode()  # an escaped lone surrogate fails here
    except (ValueError, RecursionError) as error:
        raise GroupBroken(f"{sender} sent no valid JSON: {type(error).__name__}") from error
    return value


def check_own_length(length: int, most: int) -> None:
    """Raise `HearthError` if a rank's own bytes are more than the others accept."""
    if length > most:
        raise HearthError(f"a rank would send {length:,} bytes at once; at most {most:,} can go")


def check_length(length: int, most: int, sender: str) -> None:
    """Raise `GroupBroken` unless another rank announces from 0 to `most` bytes."""
    if not 0 <= length <= most:
        raise GroupBroken(f"{sender} announces {length:,} bytes; at most {most:,} are accepted")
