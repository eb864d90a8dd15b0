"""Collectives of a group formed in place: over TCP, each member sending to the one behind it.

Why not gloo: its collectives and the destructor of its groups wait for good if a connection breaks
while a tensor is under way (torch 2.13: `Pair::signalException` forgets such sends and receives),
nothing interrupts them, and groups must form and end by the second here. A sum moves as many bytes
as gloo's: each member sends and receives 2 (n - 1) / n times the tensor.

Every collective begins with a header, so that members that do different things find out.
"""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from hearth.ranks.alarm import Alarm, GroupBroken
from hearth.ranks.meeting import Neighbours

_PIECE = 1 << 20
"""Bytes that are added, or passed on, at once: what arrives meanwhile waits in the kernel."""

_HEADER = struct.Struct("!8sQ")
_LENGTH = struct.Struct("!Q")
_NOTHING = memoryview(b"")


class Ring:
    """A group's members in a ring, named by an index from 0.

    Every method raises `GroupBroken` if a connection breaks, the alarm sounds, or nothing moves for
    `patience` seconds.

    Args:
        neighbours: the connections, which the ring closes.
        index: of this member.
        names: of all members, for people.
        alarm: ends all waiting.
        patience: seconds without a byte after which the group is broken.
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

    def close(self) -> None:
        """Close the connections; the other members notice."""
        self._neighbours.close()

    def gather(self, value: Any) -> list[Any]:
        """Return the JSON `value` of every member, in order, on every member."""
        self._begin("gather", 0)
        found = [b""] * self._size
        found[self._index] = json.dumps(value).encode()
        for step in range(self._size - 1):
            out = found[(self._index - step) % self._size]
            length = bytearray(_LENGTH.size)
            self._move(memoryview(_LENGTH.pack(len(out))), memoryview(length))
            into = bytearray(_LENGTH.unpack(length)[0])
            self._move(memoryview(out), memoryview(into))
            found[(self._index - step - 1) % self._size] = bytes(into)
        return [json.loads(each) for each in found]

    def bytes_from(self, source: int, content: bytes) -> bytes:
        """Return the `content` of member `source` on every member."""
        self._begin("bytes", source)
        length = bytearray(_LENGTH.pack(len(content)))
        self._pass_on(source, memoryview(length))
        if self._index == source:
            self._pass_on(source, memoryview(content))
            return content
        into = bytearray(_LENGTH.unpack(length)[0])
        self._pass_on(source, memoryview(into))
        return bytes(into)

    def broadcast(self, buffer: torch.Tensor, source: int) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by that of member `source`."""
        view = _bytes_of(buffer)
        self._begin("copy", len(view) * self._size + source)
        self._pass_on(source, view)

    def sum(self, buffer: torch.Tensor) -> None:
        """Replace `buffer`, a contiguous tensor on the CPU, by its sum over all members.

        The result is the same on all members, bit for bit.
        """
        flat = buffer.detach().view(-1)
        self._begin("sum", flat.numel() * flat.element_size())
        ends = [flat.numel() * part // self._size for part in range(self._size + 1)]
        parts = [flat[begin:end] for begin, end in pairwise(ends)]
        for step in range(self._size - 1):
            self._add(
                parts[(self._index - step) % self._size],
                parts[(self._index - step - 1) % self._size],
            )
        for step in range(self._size - 1):
            self._move(
                _bytes_of(parts[(self._index - step + 1) % self._size]),
                _bytes_of(parts[(self._index - step) % self._size]),
            )

    def barrier(self) -> None:
        """Wait until every member has called this."""
        self.gather(None)

    def _begin(self, what: str, size: int) -> None:
        """Exchange headers with the neighbours.

        Raises `GroupBroken` if the member before begins another collective.
        """
        own = _HEADER.pack(what.encode(), size)
        other = bytearray(len(own))
        self._move(memoryview(own), memoryview(other))
        if own != other:
            kind, length = _HEADER.unpack(other)
            raise GroupBroken(
                f"{self._before} is elsewhere: {kind.rstrip(bytes(1)).decode(errors='replace')} "
                f"{length} there, {what} {size} here"
            )

    def _add(self, out: torch.Tensor, into: torch.Tensor) -> None:
        """Send `out`, and add what the member before sends to `into`."""
        most = _PIECE // out.element_size()
        arrived = torch.empty(min(most, into.numel()), dtype=into.dtype)
        for begin in range(0, max(out.numel(), into.numel()), most):
            target = into[begin : begin + most]
            piece = arrived[: target.numel()]
            self._move(_bytes_of(out[begin : begin + most]), _bytes_of(piece))
            target.add_(piece)

    def _pass_on(self, source: int, content: memoryview) -> None:
        """Fill `content` with that of `source`, and send it on unless the next one has it."""
        receives = self._index != source
        sends = (self._index + 1) % self._size != source
        pieces = [content[begin : begin + _PIECE] for begin in range(0, len(content), _PIECE)]
        last = _NOTHING if receives else None
        for piece in pieces:
            if last is None:
                self._move(piece, _NOTHING)
            else:
                self._move(last if sends else _NOTHING, piece)
                last = piece
        if last is not None and sends:
            self._move(last, _NOTHING)

    def _move(self, out: memoryview, into: memoryview) -> None:
        """Send all of `out` to the member behind while `into` is filled by the one before."""
        before, behind = self._neighbours.before, self._neighbours.behind
        while out or into:
            moved = 0
            if into:
                moved += (count := self._receive(before, into))
                into = into[count:]
            if out:
                moved += (count := self._send(behind, out))
                out = out[count:]
            if not moved:
                events = {before.fileno(): select.POLLIN} if into else {}
                if out:
                    events[behind.fileno()] = select.POLLOUT
                if not self._alarm.wait(events, self._patience):
                    whom = self._before if into else self._behind
                    raise GroupBroken(f"{whom} did nothing for {self._patience:g} s")

    def _receive(self, before: socket.socket, into: memoryview) -> int:
        try:
            count = before.recv_into(into)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise GroupBroken(f"the connection from {self._before} broke: {error}") from error
        if not count:
            raise GroupBroken(f"{self._before} closed its connection")
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
