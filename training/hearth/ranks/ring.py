"""Collectives of a group formed in place: over TCP, each member sending to the one behind it.

Why not gloo: its collectives and the destructor of its groups wait for good if a connection breaks
while a tensor is under way (torch 2.13: `Pair::signalException` forgets such sends and receives),
nothing interrupts them, and groups must form and end by the second here. A sum moves as many bytes
as gloo's: each member sends and receives 2 (n - 1) / n times the tensor.

Every collective begins with a header, so that members that do different things find out.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import torch

from hearth.base.text import plain
from hearth.ranks.alarm import (
    LONGEST_BYTES,
    LONGEST_VALUE,
    Alarm,
    GroupBroken,
    check_length,
    check_own_length,
    from_bytes,
    to_bytes,
)
from hearth.ranks.hop import CHUNK, Hop, HopMeter, receive, stamp_arrivals
from hearth.ranks.rendezvous import Neighbours

_PIECE = 1 << 20
"""Bytes that are added, or sent on, once they have arrived."""

_HEADER = struct.Struct("!8sQ")
_LENGTH = struct.Struct("!Q")


class Ring:
    """A group's members in a ring, named by an index from 0.

    Every method raises `GroupBroken` if a connection breaks, the alarm sounds, or nothing moves for
    `patience` seconds.

    Args:
        neighbours: the connections, which the ring closes.
        index: of this member.
        names: of all members, for people.
        alarm: ends all waiting.
        patience: seconds without a byte before the group is broken.
    """

    def __init__(
        self,
        neighbours: Neighbours,
        index: int,
        names: Sequence[str],
        alarm: Alarm,
        patience: float,
    ) -> None:
        self._neighbours, self._index, self._names = neighbours, index, names
        self._size = len(names)
        self._alarm, self._patience = alarm, patience
        self._meter, self._metered = HopMeter(), False
        stamp_arrivals(neighbours.before)

    @property
    def hop(self) -> Hop:
        """The hop from the member before this one: of the piece of a sum that is under way."""
        return self._meter.now(time.time()) if self._metered else Hop()

    def close(self) -> None:
        """Close the connections; the other members notice."""
        self._neighbours.close()

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of every member, in order, on every member."""
        own = to_bytes(value)
        check_own_length(len(own), LONGEST_VALUE)
        found = {self._index: own}
        outgoing = deque([memoryview(_LENGTH.pack(len(own)) + own)])

        def incoming() -> Iterator[memoryview]:
            for step in range(1, self._size):
                pieces: list[bytearray] = []
                for each in self._announced(LONGEST_VALUE, pieces):
                    yield each
                    if step < self._size - 1:
                        outgoing.append(each)
                found[(self._index - step) % self._size] = b"".join(pieces)

        self._exchange("gather", 0, outgoing, incoming())
        return [from_bytes(found[index], name) for index, name in enumerate(self._names)]

    def bytes_from(self, source: int, content: bytes) -> bytes:
        """Return the `content` of member `source` on every member."""
        if self._index == source:
            check_own_length(len(content), LONGEST_BYTES)
            length = memoryview(_LENGTH.pack(len(content)))
            self._give("bytes", source, (length, *_pieces(memoryview(content))))
            return content
        found: list[bytearray] = []
        self._relay("bytes", source, source, self._announced(LONGEST_BYTES, found))
        return b"".join(found)

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by that of member `source`."""
        view = _bytes_of(buffer)
        size = len(view) * self._size + source
        if self._index == source:
            self._give("copy", size, _pieces(view))
        else:
            self._relay("copy", size, source, _pieces(view))

    def sum(self, buffer: torch.Tensor) -> Hop:
        """Replace `buffer`, a contiguous tensor on the CPU, by its sum over all members.

        Returns the hop from the member before this one, as it was in the sum.

        The result is the same on all members, bit for bit. In the first `size` - 1 steps a member
        adds what arrives to its own summand, in the others it takes what arrives as the sum. Each
        step sends on what arrived in the step before, piece by piece: a piece waits for no other.
        """
        flat = buffer.detach().view(-1)
        most = _PIECE // flat.element_size()
        ends = [flat.numel() * part // self._size for part in range(self._size + 1)]
        parts = [
            [flat[at : min(at + most, end)] for at in range(begin, end, most)]
            for begin, end in pairwise(ends)
        ]
        outgoing = deque(map(_bytes_of, parts[self._index]))
        steps = 2 * (self._size - 1)

        def incoming() -> Iterator[memoryview]:
            summand = torch.empty(min(most, flat.numel()), dtype=flat.dtype)
            for step in range(steps):
                for piece in parts[(self._index - step - 1) % self._size]:
                    if step < self._size - 1:
                        arrived = summand[: piece.numel()]
                        yield _bytes_of(arrived)
                        piece.add_(arrived)
                    else:
                        yield _bytes_of(piece)
                    if step < steps - 1:
                        outgoing.append(_bytes_of(piece))

        self._meter.begin(time.time())
        self._metered = True
        try:
            self._exchange("sum", flat.numel() * flat.element_size(), outgoing, incoming())
        finally:
            self._metered = False
        return self._meter.measured()

    def barrier(self) -> None:
        """Wait until every member has called this."""
        self.gather(None)

    def _give(self, what: str, size: int, content: Iterable[memoryview]) -> None:
        """Send this member's own `content` to the member behind."""
        self._exchange(what, size, deque(content), iter(()))

    def _relay(self, what: str, size: int, source: int, incoming: Iterable[memoryview]) -> None:
        """Fill the buffers from `source`, and send them on unless the next member is the source."""
        outgoing: deque[memoryview] = deque()

        def relayed() -> Iterator[memoryview]:
            for each in incoming:
                yield each
                if (self._index + 1) % self._size != source:
                    outgoing.append(each)

        self._exchange(what, size, outgoing, relayed())

    def _announced(self, most: int, pieces: list[bytearray]) -> Iterator[memoryview]:
        """Yield a buffer for a length, at most `most`, and then buffers for that many bytes.

        The latter are put into `pieces`. Each is made once the one before it is full: a length
        alone takes no memory.
        """
        length = bytearray(_LENGTH.size)
        yield memoryview(length)
        (left,) = _LENGTH.unpack(length)
        check_length(left, most, self._before)
        while left:
            pieces.append(bytearray(min(left, _PIECE)))
            left -= len(pieces[-1])
            yield memoryview(pieces[-1])

    def _exchange(
        self, what: str, size: int, outgoing: deque[memoryview], incoming: Iterator[memoryview]
    ) -> None:
        """Send a header and `outgoing` while a header and `incoming` arrive.

        Raises `GroupBroken` if the member before begins another collective.
        """
        header = _HEADER.pack(what.encode(), size)
        self._move(deque([memoryview(header)]), iter(()))  # before one that differs ends the rest
        self._move(outgoing, chain(self._same(header), incoming))

    def _same(self, header: bytes) -> Iterator[memoryview]:
        """Yield the buffer for the header of the member before, which must have sent the same."""
        other = bytearray(len(header))
        yield memoryview(other)
        if other != header:
            (kind, length), (what, size) = map(_HEADER.unpack, (other, header))
            there, here = (
                plain(each.rstrip(bytes(1)).decode("ascii", "replace")) for each in (kind, what)
            )
            raise GroupBroken(
                f"{self._before} is elsewhere: {there} {length} there, {here} {size} here"
            )

    def _move(self, outgoing: deque[memoryview], incoming: Iterator[memoryview]) -> None:
        """Send to the member behind while the one before fills the buffers of `incoming`.

        `incoming` goes on once its last buffer is full, and may add to `outgoing`. No buffer of
        either is empty.
        """
        before, behind = self._neighbours.before, self._neighbours.behind
        into = next(incoming, None)
        while into or outgoing:
            moved = 0
            if into:
                moved += (count := self._receive(before, into))
                into = into[count:] or next(incoming, None)
            if outgoing:
                moved += (count := self._send(behind, outgoing[0]))
                outgoing[0] = outgoing[0][count:]
                if not outgoing[0]:
                    outgoing.popleft()
            if not moved:
                events = {before.fileno(): select.POLLIN} if into else {}
                if outgoing:
                    events[behind.fileno()] = select.POLLOUT
                if not self._alarm.wait(events, self._patience):
                    whom = self._before if into else self._behind
                    raise GroupBroken(f"{whom} did nothing for {self._patience:g} s")

    def _receive(self, before: socket.socket, into: memoryview) -> int:
        try:
            count, at = receive(before, into[:CHUNK])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise GroupBroken(f"the connection from {self._before} broke: {error}") from error
        if not count:
            raise GroupBroken(f"{self._before} closed its connection")
        if self._metered:
            self._meter.arrived(count, at, len(into) - count)
        return count

    def _send(self, behind: socket.socket, out: memoryview) -> int:
        try:
            return behind.send(out)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise GroupBroken(f"the connection to {self._behind} broke: {error}") from error

    @property
    def _before(self) -> str:
        return self._names[self._index - 1]

    @property
    def _behind(self) -> str:
        return self._names[(self._index + 1) % self._size]


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a contiguous tensor on the CPU, which share its memory."""
    return memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())


def _pieces(content: memoryview) -> Iterator[memoryview]:
    """Yield the pieces of `content` that are sent on one by one."""
    return (content[begin : begin + _PIECE] for begin in range(0, len(content), _PIECE))
