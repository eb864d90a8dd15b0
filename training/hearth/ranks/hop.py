"""Speed of a hop: a link of a ring, to a member from the one before it.

Waiting for a neighbour that still computes, or that has nothing to send on yet, must not look like
a slow link. The sender holds a whole piece before it sends its first byte, so a hop is measured
within pieces: the bytes that follow the first ones, over the time from then to the last byte. The
kernel's time of arrival counts: a process that was not scheduled reads late what came in time.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass, field

CHUNK = 1 << 16
"""Bytes to read at once: each read tells one time of arrival."""

_STAMP = 35
"""SO_TIMESTAMPNS of Linux, which Python does not name."""

_TIMESPEC = struct.Struct("@ll")

_SILENT = 5.0
"""Seconds without a byte after which a hop is not slow: its sender stands still, or it is cut."""

_OUTER = 0.25
"""Part of the bytes, in the fastest and in the slowest pieces, that does not count.

A sender that is not scheduled within a piece makes it slow, a queue that was empty makes it fast.
"""


@dataclass(frozen=True)
class Hop:
    """Bytes received over a hop, and the seconds that the link took for them; 0: not measured."""

    bytes: int = 0
    seconds: float = 0.0

    @property
    def mbit(self) -> float | None:
        """The speed in Mbit/s; None if it was not seen."""
        return self.bytes * 8e-6 / self.seconds if self.bytes and self.seconds > 0 else None


@dataclass
class HopMeter:
    """Measures the hop of one collective after the other; times are those of the system's clock."""

    _ready: float = 0.0
    _first: float | None = None
    _last: float = 0.0
    _bytes: int = 0
    _pieces: list[Hop] = field(default_factory=list)

    def begin(self, now: float) -> None:
        """Begin a collective: earlier bytes may have waited for this member."""
        self._ready, self._first, self._pieces = now, None, []

    def arrived(self, count: int, at: float, missing: int) -> None:
        """Note `count` bytes of a piece that arrived `at` this time; `missing` are yet to come."""
        if self._first is None and at >= self._ready:
            self._first, self._bytes = at, 0
        elif self._first is not None:
            self._bytes += count
        self._last = at
        if not missing:
            if self._first is not None and self._bytes and at > self._first:
                self._pieces.append(Hop(self._bytes, at - self._first))
            self._first = None

    def measured(self) -> Hop:
        """Return the hop of the collective that has just ended, without its outer pieces."""
        pieces = sorted(self._pieces, key=lambda piece: piece.bytes / piece.seconds)
        everything = sum(piece.bytes for piece in pieces)
        before, kept = 0, []
        for piece in pieces:
            middle = (before + piece.bytes / 2) / everything
            before += piece.bytes
            if _OUTER <= middle <= 1 - _OUTER:
                kept.append(piece)
        kept = kept or pieces
        return Hop(sum(each.bytes for each in kept), sum(each.seconds for each in kept))

    def now(self, now: float) -> Hop:
        """Return the hop in the piece that is under way, from any thread; nothing between two."""
        first, count = self._first, self._bytes
        if first is None or now - self._last > _SILENT:
            return Hop()
        return Hop(count, max(0.0, now - first))


def stamp_arrivals(connection: socket.socket) -> None:
    """Have the kernel note arrival times on a connection."""
    connection.setsockopt(socket.SOL_SOCKET, _STAMP, 1)


def receive(connection: socket.socket, into: memoryview) -> tuple[int, float]:
    """Read into a buffer; return the number of bytes, and when the last of them arrived."""
    count, notes, _, _ = connection.recvmsg_into([into], socket.CMSG_SPACE(_TIMESPEC.size))
    for level, kind, content in notes:
        if (level, kind) == (socket.SOL_SOCKET, _STAMP):
            seconds, nanoseconds = _TIMESPEC.unpack(content)
            return count, seconds + nanoseconds * 1e-9
    return count, time.time()
