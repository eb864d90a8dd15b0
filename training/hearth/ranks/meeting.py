"""The meeting of a group's members: from an order to connections in a ring.

Every member tells the first one at which port it listens, and is told all others' addresses; then
each connects to the next. All of them answer the addresses of the nodes only. A member that comes
with an old order is turned away.
"""

from __future__ import annotations

import ipaddress
import json
import select
import socket
import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from hearth.base.packet_filter import listening
from hearth.ranks.alarm import Alarm, Deadline, GroupBroken
from hearth.ranks.orders import Form

FORM_TIMEOUT = 30.0
"""Seconds after which the forming of a group is given up."""

_KNOCK = 0.01
"""Seconds between two attempts to connect to a member that does not listen yet."""

_PROBES = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 30, socket.TCP_KEEPCNT: 9}
"""Seconds and number of the probes of a connection on which nothing comes: 5 min without an answer.

A router may forget an idle connection, while that of the supervisors lives on. No TCP_USER_TIMEOUT:
it would also end the connection to a member that has not begun to read yet.
"""

_HELLO = struct.Struct("!8sQIII")
"""Magic, generation, index of the member that connects, purpose, port at which it listens."""

_MAGIC = b"hearth-1"
_TABLE, _RING = 0, 1
_LENGTH = struct.Struct("!I")

_RUBBISH = (ValueError, LookupError, TypeError)
"""Errors of reading a table that another program has sent, which listens at the leader's port."""

_MOST = 1 << 16
"""Bytes to read at once, whatever length was announced."""


@dataclass(frozen=True)
class Neighbours:
    """Connections of a member: what the one before sends, and what the one behind receives."""

    before: socket.socket
    behind: socket.socket

    def close(self) -> None:
        """Close both connections."""
        self.before.close()
        self.behind.close()


def meet(order: Form, index: int, size: int, alarm: Alarm) -> Neighbours:
    """Return the connections of member `index` of `size` to its neighbours in the ring.

    Raises `GroupBroken` if not all members come within FORM_TIMEOUT, one leaves, the address cannot
    be used, or the alarm sounds.
    """
    meeting = _Meeting(order, index, size, alarm)
    try:
        with ExitStack() as opened:
            return meeting.lead(opened) if index == 0 else meeting.take_part(opened)
    except (OSError, *_RUBBISH) as error:
        raise GroupBroken(
            f"the group could not be formed at {order.address} port {order.port}: {error}"
        ) from error


class _Meeting:
    """One member at the meeting; every wait ends at the deadline or with the alarm."""

    def __init__(self, order: Form, index: int, size: int, alarm: Alarm) -> None:
        self._order, self._index, self._size, self._alarm = order, index, size, alarm
        self._deadline = Deadline(FORM_TIMEOUT)

    def lead(self, opened: ExitStack) -> Neighbours:
        """Take part as the first member, which all others know."""
        order = self._order
        listener = opened.enter_context(listening(order.address, order.port, order.clients))
        found = self._greet(listener, {(index, _TABLE) for index in range(1, self._size)})
        places = [(order.address.partition("%")[0], order.port)]
        for index in range(1, self._size):
            member, port = found[index, _TABLE]
            opened.enter_context(member)
            places.append((member.getpeername()[0], port))
        table = json.dumps(places).encode()
        for index in range(1, self._size):
            self._send(found[index, _TABLE][0], _LENGTH.pack(len(table)) + table)
        address, port = places[1]
        scope = found[1, _TABLE][0].getsockname()[2:]
        return self._close_ring(listener, (_scoped(address, scope), port))

    def take_part(self, opened: ExitStack) -> Neighbours:
        """Take part as another member."""
        order = self._order
        table = opened.enter_context(self._connect((order.address, order.port)))
        own, _, *scope = table.getsockname()
        listener = opened.enter_context(listening(_scoped(own, scope), 0, order.clients))
        self._send(table, self._hello(_TABLE, listener.getsockname()[1]))
        (length,) = _LENGTH.unpack(self._receive(table, _LENGTH.size))
        places = json.loads(self._receive(table, length))
        address, port = places[(self._index + 1) % self._size]
        return self._close_ring(listener, (_scoped(address, scope), port))

    def _close_ring(self, listener: socket.socket, behind: tuple[str, int]) -> Neighbours:
        """Connect to the member behind, and accept the one before."""
        connection = self._connect(behind)
        try:
            self._send(connection, self._hello(_RING, 0))
            before = (self._index - 1) % self._size
            found = self._greet(listener, {(before, _RING)})
        except BaseException:
            connection.close()
            raise
        for each in (connection, found[before, _RING][0]):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _PROBES.items():
                each.setsockopt(socket.IPPROTO_TCP, option, value)
        return Neighbours(found[before, _RING][0], connection)

    def _hello(self, purpose: int, port: int) -> bytes:
        return _HELLO.pack(_MAGIC, self._order.generation, self._index, purpose, port)

    def _greet(
        self, listener: socket.socket, wanted: Collection[tuple[int, int]]
    ) -> dict[tuple[int, int], tuple[socket.socket, int]]:
        """Accept connections until each member with its purpose has come; return them.

        With each comes the port at which that member listens.
        """
        listener.setblocking(False)
        said: dict[socket.socket, bytes] = {}
        found: dict[tuple[int, int], tuple[socket.socket, int]] = {}
        with _closing(said), _closing_unless_done(found, wanted):
            while found.keys() != set(wanted):
                events = {each.fileno(): select.POLLIN for each in (listener, *said)}
                if not self._alarm.wait(events, self._deadline.left):
                    missing = sorted(index for index, _ in set(wanted) - found.keys())
                    raise GroupBroken(
                        f"of the group's {self._size} ranks these did not come within "
                        f"{FORM_TIMEOUT:g} s, counted from 0: {missing}"
                    )
                with suppress(BlockingIOError, ConnectionAbortedError):
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    said[connection] = b""
                for connection in list(said):
                    self._hear(connection, said, found, wanted)
        return found

    def _hear(
        self,
        connection: socket.socket,
        said: dict[socket.socket, bytes],
        found: dict[tuple[int, int], tuple[socket.socket, int]],
        wanted: Collection[tuple[int, int]],
    ) -> None:
        """Read more of a hello; move a member to `found`, and close the connection of others."""
        try:
            news = connection.recv(_HELLO.size - len(said[connection]))
        except BlockingIOError:
            return
        except OSError:
            news = b""
        said[connection] += news
        if news and len(said[connection]) < _HELLO.size:
            return
        hello = said.pop(connection)
        member, port = self._understand(hello) if len(hello) == _HELLO.size else (None, 0)
        if member in wanted and member not in found:
            found[member] = connection, port
        else:
            connection.close()

    def _understand(self, hello: bytes) -> tuple[tuple[int, int] | None, int]:
        """Return index and purpose of a member of this group, else None, and its port."""
        magic, generation, index, purpose, port = _HELLO.unpack(hello)
        belongs = (magic, generation) == (_MAGIC, self._order.generation)
        return (index, purpose) if belongs else None, port

    def _connect(self, place: tuple[str, int]) -> socket.socket:
        """Return a connection to a member, which may not listen yet.

        While nobody does, a socket on the same machine may be given that very port, and find itself
        at the other end.
        """
        family, kind, _, _, address = socket.getaddrinfo(
            *place, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        while True:
            connection = socket.socket(family, kind)
            try:
                connection.setblocking(False)
                with suppress(BlockingIOError):
                    connection.connect(address)
                ready = self._alarm.wait({connection.fileno(): select.POLLOUT}, self._deadline.left)
                error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if ready and not error and connection.getsockname() != connection.getpeername():
                    return connection
            except ConnectionRefusedError:
                pass
            except BaseException:
                connection.close()
                raise
            connection.close()
            if not self._deadline.left:
                raise GroupBroken(f"{place[0]} port {place[1]} did not answer")
            self._alarm.wait({}, _KNOCK)

    def _send(self, connection: socket.socket, content: bytes) -> None:
        while content:
            if not self._alarm.wait({connection.fileno(): select.POLLOUT}, self._deadline.left):
                raise GroupBroken(f"not all ranks met within {FORM_TIMEOUT:g} s")
            content = content[connection.send(content) :]

    def _receive(self, connection: socket.socket, length: int) -> bytes:
        content = bytearray()
        while len(content) < length:
            if not self._alarm.wait({connection.fileno(): select.POLLIN}, self._deadline.left):
                raise GroupBroken(f"not all ranks met within {FORM_TIMEOUT:g} s")
            news = connection.recv(min(length - len(content), _MOST))
            if not news:
                raise GroupBroken("the first rank of the group gave up forming it")
            content += news
        return bytes(content)


@contextmanager
def _closing(connections: dict[socket.socket, bytes]) -> Iterator[None]:
    """Close what is left of these connections in the end."""
    try:
        yield
    finally:
        for each in connections:
            each.close()


@contextmanager
def _closing_unless_done(
    found: dict[tuple[int, int], tuple[socket.socket, int]], wanted: Collection[tuple[int, int]]
) -> Iterator[None]:
    """Close the connections in `found` if not all that are wanted came."""
    try:
        yield
    finally:
        if found.keys() != set(wanted):
            for each, _ in found.values():
                each.close()


def _scoped(address: str, scope: Sequence[int]) -> str:
    """Return a link-local address with its interface, whose number is known to this machine only.

    `scope` is the end of a socket's IPv6 address: flow and interface; empty for IPv4.
    """
    local = ipaddress.ip_address(address).is_link_local
    return f"{address}%{scope[-1]}" if local and scope else address
