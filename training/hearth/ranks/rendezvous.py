"""The rendezvous of a group: from an order to connections between its members in a ring.

Every member tells the first one its port, and is told all others' addresses; then
each connects to the next. All of them answer the addresses of the nodes only, and both ends of each
connection prove that they know the key of the order; no stranger is told or believed anything:

    leader    challenge                              other for each connection
    member    hello(index, port, nonce), proof       of the key and the challenge
    leader    proof, table of (address, port, nonce) of the key, the hello and the table
    member    hello to the next member, proof        of the key and that member's nonce in the table
    next      proof                                  of the key and the hello
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import select
import socket
import struct
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

from hearth.base.packet_filter import listening
from hearth.ranks.alarm import Alarm, GroupBroken, check_length, from_bytes
from hearth.ranks.control_protocol import Form

FORM_TIMEOUT = 30.0
"""Seconds after which the forming of a group is given up."""

_KNOCK = 0.01
"""Seconds between two attempts to connect to a member that does not listen yet."""

_PROBES = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 30, socket.TCP_KEEPCNT: 9}
"""Seconds and number of the probes of a silent connection: 5 min without an answer.

A router may forget an idle connection, while that of the supervisors lives on. No TCP_USER_TIMEOUT:
it would also end the connection to a member that has not begun to read yet.
"""

_NONCE = 16
_PROOF = 32
_HELLO = struct.Struct(f"!8sQIIH{_NONCE}s")
"""Magic, generation, index of the member, purpose, its listening port, its nonce."""

_MAGIC = b"hearth-2"
_TABLE, _RING = 0, 1
_LENGTH = struct.Struct("!I")

_LONGEST_TABLE = 1 << 20
_MOST_STRANGERS = 64
"""Connections beyond the members' that may stay open without a valid hello; older ones end."""

_INVALID = (ValueError, LookupError, TypeError, OverflowError)
"""Errors of a table with a valid proof that another version of Hearth has sent."""

_MOST = 1 << 16
"""Bytes to read at once, whatever length was announced."""


@dataclass(frozen=True)
class Neighbours:
    """Connections of a member: from the one before it, and to the one behind it."""

    before: socket.socket
    behind: socket.socket

    def close(self) -> None:
        """Close both connections."""
        self.before.close()
        self.behind.close()


@dataclass
class _Caller:
    """An accepted connection, which is a member's once its hello has a valid proof."""

    connection: socket.socket
    challenge: bytes
    said: bytearray = field(default_factory=bytearray)

    @property
    def member(self) -> tuple[int, int]:
        """Index and purpose."""
        _, _, index, purpose, _, _ = _HELLO.unpack(self.said[: _HELLO.size])
        return index, purpose

    @property
    def listens(self) -> tuple[int, str]:
        """Port and nonce for the member before."""
        _, _, _, _, port, nonce = _HELLO.unpack(self.said[: _HELLO.size])
        return port, nonce.hex()

    @property
    def proof(self) -> bytes:
        """The proof of the hello."""
        return bytes(self.said[_HELLO.size :])


def meet(order: Form, index: int, size: int, alarm: Alarm) -> Neighbours:
    """Return the connections of member `index` of `size` to its neighbours in the ring.

    Raises `GroupBroken` if not all members come within FORM_TIMEOUT, one leaves, the address cannot
    be used, the order has no key, or the alarm sounds.
    """
    if not order.key:
        raise GroupBroken("the order to form a group has no key")
    meeting = _Meeting(order, index, size, alarm)
    try:
        with ExitStack() as opened:
            return meeting.lead(opened) if index == 0 else meeting.take_part(opened)
    except (OSError, *_INVALID) as error:
        raise GroupBroken(
            f"the group could not be formed at {order.address} port {order.port}: {error}"
        ) from error


class _Meeting:
    """One member at the meeting; every wait ends at the deadline or with the alarm."""

    def __init__(self, order: Form, index: int, size: int, alarm: Alarm) -> None:
        self._order, self._index, self._size, self._alarm = order, index, size, alarm
        self._end = time.monotonic() + FORM_TIMEOUT
        self._nonce = secrets.token_bytes(_NONCE)

    @property
    def _left(self) -> float:
        """Seconds until the deadline; 0 if it has passed."""
        return max(0.0, self._end - time.monotonic())

    def lead(self, opened: ExitStack) -> Neighbours:
        """Take part as the first member, which all others know."""
        order = self._order
        listener = opened.enter_context(listening(order.address, order.port, order.clients))
        found = self._greet(listener, {(index, _TABLE) for index in range(1, self._size)})
        places = [(order.address.partition("%")[0], order.port, self._nonce.hex())]
        for index in range(1, self._size):
            member = found[index, _TABLE]
            opened.enter_context(member.connection)
            places.append((member.connection.getpeername()[0], *member.listens))
        table = json.dumps(places).encode()
        for index in range(1, self._size):
            member = found[index, _TABLE]
            proof = self._welcome(member.proof, table)
            self._send(member.connection, _LENGTH.pack(len(table)) + proof + table)
        scope = found[1, _TABLE].connection.getsockname()[2:]
        return self._close_ring(listener, places[1], scope)

    def take_part(self, opened: ExitStack) -> Neighbours:
        """Take part as another member."""
        order = self._order
        leader = opened.enter_context(self._connect((order.address, order.port)))
        own, _, *scope = leader.getsockname()
        listener = opened.enter_context(listening(_scoped(own, scope), 0, order.clients))
        who = f"the first rank of the group, at {order.address} port {order.port},"
        challenge = self._receive(leader, _NONCE, who)
        hello, own_proof = self._hello(_TABLE, listener.getsockname()[1], challenge)
        self._send(leader, hello + own_proof)
        (length,) = _LENGTH.unpack(self._receive(leader, _LENGTH.size, who))
        check_length(length, _LONGEST_TABLE, who)
        proof = self._receive(leader, _PROOF, who)
        table = self._receive(leader, length, who)
        self._check(proof, self._welcome(own_proof, table), who)
        place = from_bytes(table, who)[(self._index + 1) % self._size]
        return self._close_ring(listener, place, scope)

    def _close_ring(
        self, listener: socket.socket, place: Sequence[Any], scope: Sequence[int]
    ) -> Neighbours:
        """Connect to the member behind, which listens at `place`, and accept the one before."""
        address, port, nonce = place
        connection = self._connect((_scoped(address, scope), port))
        try:
            hello, own_proof = self._hello(_RING, 0, bytes.fromhex(nonce))
            self._send(connection, hello + own_proof)
            before = (self._index - 1) % self._size
            found = self._greet(listener, {(before, _RING)})[before, _RING]
        except BaseException:
            connection.close()
            raise
        neighbours = Neighbours(found.connection, connection)
        try:
            self._send(found.connection, self._welcome(found.proof))
            who = f"the next rank of the group, at {address} port {port},"
            self._check(self._receive(connection, _PROOF, who), self._welcome(own_proof), who)
        except BaseException:
            neighbours.close()
            raise
        for each in (connection, found.connection):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _PROBES.items():
                each.setsockopt(socket.IPPROTO_TCP, option, value)
        return neighbours

    def _hello(self, purpose: int, port: int, challenge: bytes) -> tuple[bytes, bytes]:
        """Return this member's hello, and its proof to the sender of the challenge."""
        generation = self._order.generation
        hello = _HELLO.pack(_MAGIC, generation, self._index, purpose, port, self._nonce)
        return hello, self._mac(b"hello", challenge, hello)

    def _welcome(self, proof: bytes, table: bytes = b"") -> bytes:
        """Return the proof of a listening member to the one that has sent a hello with `proof`."""
        return self._mac(b"welcome", proof, table)

    def _mac(self, *parts: bytes) -> bytes:
        return hmac.digest(self._order.key.encode(), b"".join(parts), "sha256")

    def _check(self, proof: bytes, expected: bytes, who: str) -> None:
        if not hmac.compare_digest(proof, expected):
            raise GroupBroken(f"{who} does not know the key of the group: it is another program")

    def _greet(
        self, listener: socket.socket, wanted: Collection[tuple[int, int]]
    ) -> dict[tuple[int, int], _Caller]:
        """Accept connections until each member with its purpose has come; return them."""
        listener.setblocking(False)
        callers: dict[socket.socket, _Caller] = {}
        found: dict[tuple[int, int], _Caller] = {}
        try:
            while found.keys() != set(wanted):
                events = {each.fileno(): select.POLLIN for each in (listener, *callers)}
                if not self._alarm.wait(events, self._left):
                    missing = sorted(index for index, _ in set(wanted) - found.keys())
                    raise GroupBroken(
                        f"of the group's {self._size} ranks these did not come within "
                        f"{FORM_TIMEOUT:g} s, counted from 0: {missing}"
                    )
                with suppress(BlockingIOError, ConnectionAbortedError):
                    connection, _ = listener.accept()
                    connection.setblocking(False)
                    callers[connection] = _Caller(connection, self._challenge(connection, wanted))
                if len(callers) > self._size + _MOST_STRANGERS:
                    oldest = next(iter(callers))
                    del callers[oldest]
                    oldest.close()
                for caller in list(callers.values()):
                    self._hear(caller, callers, found, wanted)
        except BaseException:
            for caller in found.values():
                caller.connection.close()
            raise
        finally:
            for connection in callers:
                connection.close()
        return found

    def _challenge(self, connection: socket.socket, wanted: Collection[tuple[int, int]]) -> bytes:
        """Return the challenge of an accepted connection, and send it unless the table has it."""
        if all(purpose == _RING for _, purpose in wanted):
            return self._nonce
        challenge = secrets.token_bytes(_NONCE)
        with suppress(OSError):  # who is gone already is noticed when nothing arrives
            connection.send(challenge)
        return challenge

    def _hear(
        self,
        caller: _Caller,
        callers: dict[socket.socket, _Caller],
        found: dict[tuple[int, int], _Caller],
        wanted: Collection[tuple[int, int]],
    ) -> None:
        """Read more of a hello; move a member to `found`, and close the connection of others."""
        size = _HELLO.size + _PROOF
        try:
            news = caller.connection.recv(size - len(caller.said))
        except BlockingIOError:
            return
        except OSError:
            news = b""
        caller.said += news
        if news and len(caller.said) < size:
            return
        del callers[caller.connection]
        if (
            news
            and self._belongs(caller)
            and caller.member in wanted
            and caller.member not in found
        ):
            found[caller.member] = caller
        else:
            caller.connection.close()

    def _belongs(self, caller: _Caller) -> bool:
        """Return whether a caller's hello is one of this group, with a valid proof."""
        hello = bytes(caller.said[: _HELLO.size])
        proof = self._mac(b"hello", caller.challenge, hello)
        group = _HELLO.unpack(hello)[:2] == (_MAGIC, self._order.generation)
        return hmac.compare_digest(proof, caller.proof) and group

    def _connect(self, place: tuple[str, int]) -> socket.socket:
        """Return a connection to a member, which may not listen yet.

        Until then a socket on the same machine may be given that very port, and find itself
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
                ready = self._alarm.wait({connection.fileno(): select.POLLOUT}, self._left)
                error = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if ready and not error and connection.getsockname() != connection.getpeername():
                    return connection
            except ConnectionRefusedError:
                pass
            except BaseException:
                connection.close()
                raise
            connection.close()
            if not self._left:
                raise GroupBroken(f"{place[0]} port {place[1]} did not answer")
            self._alarm.wait({}, _KNOCK)

    def _send(self, connection: socket.socket, content: bytes) -> None:
        while content:
            if not self._alarm.wait({connection.fileno(): select.POLLOUT}, self._left):
                raise GroupBroken(f"not all ranks met within {FORM_TIMEOUT:g} s")
            content = content[connection.send(content) :]

    def _receive(self, connection: socket.socket, length: int, who: str) -> bytes:
        content = bytearray()
        while len(content) < length:
            if not self._alarm.wait({connection.fileno(): select.POLLIN}, self._left):
                raise GroupBroken(f"not all ranks met within {FORM_TIMEOUT:g} s")
            news = connection.recv(min(length - len(content), _MOST))
            if not news:
                raise GroupBroken(f"{who} gave up forming it")
            content += news
        return bytes(content)


def _scoped(address: str, scope: Sequence[int]) -> str:
    """Return a link-local address with its interface, whose number is known to this machine only.

    `scope` is the end of a socket's IPv6 address: flow and interface; empty for IPv4.
    """
    local = ipaddress.ip_address(address).is_link_local
    return f"{address}%{scope[-1]}" if local and scope else address
