"""The meeting of a group's members: all find each other, and strangers stay out."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest
from hypothesis import given
from support.rubbish import LITTLE, answerer, quick, rubbish, send, send_endlessly
from support.strangers import answers
from support.supervisors import free_port
from support.waiting import HANG, until

from hearth.base.packet_filter import admit_only
from hearth.ranks import rendezvous
from hearth.ranks.alarm import Alarm, GroupBroken
from hearth.ranks.control_protocol import Form
from hearth.ranks.rendezvous import Neighbours, meet


@pytest.fixture
def order() -> Form:
    return Form(7, ("a", "b", "c"), "127.0.0.1", free_port(), ("127.0.0.1",), False, key="key")


def meet_all(order: Form, size: int, late: Callable[[int], None] = lambda _: None) -> list:
    """Have all members meet; return each one's connections, or its error."""

    def come(index: int) -> Neighbours | GroupBroken:
        late(index)
        try:
            return meet(order, index, size, Alarm())
        except GroupBroken as broken:
            return broken

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(come, range(size)))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_each_member_is_connected_to_the_one_behind(order, size):
    members = meet_all(order, size)
    for index, member in enumerate(members):
        member.behind.send(bytes([index]))
    for index, member in enumerate(members):
        member.before.setblocking(True)
        assert member.before.recv(9) == bytes([(index - 1) % size])
        member.close()


def test_a_member_that_only_waits_finds_out_that_its_connection_is_dead(order, monkeypatch):
    assert rendezvous._PROBES[socket.TCP_KEEPIDLE] < 60
    quick = {socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2}
    monkeypatch.setattr(rendezvous, "_PROBES", quick)
    first, second = meet_all(order, 2)
    # Its own probes go unanswered, too: if it gave up first, it would reset the connection.
    first.behind.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
    if not admit_only(first.behind, ()):  # from now on nothing arrives there, and nothing is told
        pytest.skip("this kernel takes no filter from this user")
    second.before.settimeout(HANG)
    with pytest.raises(TimeoutError) as found:
        second.before.recv(1)
    assert found.value.errno == errno.ETIMEDOUT
    for each in (first, second):
        each.close()


def own_link_local() -> list[str]:
    """Return IPv6 link-local addresses of this machine with their interfaces."""
    return [
        entry.address
        for entries in psutil.net_if_addrs().values()
        for entry in entries
        if entry.family == socket.AF_INET6 and entry.address.startswith("fe80")
    ][:1]


@pytest.mark.parametrize(
    "address",
    ["::1", *own_link_local()],
    ids=lambda address: "loopback" if address == "::1" else "link-local",
)
def test_members_meet_over_ipv6(order, address):
    plain = address.partition("%")[0]
    for each in meet_all(replace(order, address=address, clients=(plain,)), 3):
        each.close()


def test_the_first_member_may_come_last(order):
    slow = threading.Event()
    threading.Timer(0.3, slow.set).start()
    for each in meet_all(order, 3, lambda index: index or slow.wait(10)):
        each.close()


def test_strangers_and_members_of_another_group_do_not_get_in(order):
    outcome: list[object] = []

    def old() -> None:
        try:
            meet(replace(order, generation=6), 1, 3, Alarm())
        except GroupBroken as broken:
            outcome.append(broken)

    def late(index: int) -> None:
        if index == 0:
            return
        until(lambda: socket.create_connection((order.address, order.port)).close() is None)
        if index == 1:
            assert not answers((order.address, order.port), "127.0.0.9")
            old()
            rubbish = socket.create_connection((order.address, order.port))
            rubbish.send(b"GET / HTTP/1.1\r\nHost: anybody\r\n\r\n")
            silent = socket.create_connection((order.address, order.port))
            outcome.extend([rubbish, silent])

    for each in meet_all(order, 3, late):
        each.close()
    assert isinstance(outcome.pop(0), GroupBroken)
    for connection in outcome:
        connection.close()


def heard_by(server: socket.socket) -> bytes:
    """Return the hello that a caller sends to a program that only has a challenge for it."""
    connection, _ = server.accept()
    with connection:
        connection.sendall(bytes(16))
        return connection.recv(1 << 10)


def test_the_magic_generation_and_index_of_a_member_do_not_suffice(order):
    outcome: list[GroupBroken] = []

    def late(index: int) -> None:
        if index == 1:
            until(lambda: socket.create_connection((order.address, order.port)).close() is None)
            with pytest.raises(GroupBroken) as broken:
                meet(replace(order, key="another"), 1, 3, Alarm())
            outcome.append(broken.value)

    for each in meet_all(order, 3, late):
        each.close()
    assert len(outcome) == 1


def test_a_hello_that_was_seen_is_of_no_use_on_another_connection(order):
    with socket.create_server((order.address, 0)) as trap, ThreadPoolExecutor(1) as pool:
        seen = pool.submit(heard_by, trap)
        with pytest.raises(GroupBroken):
            meet(replace(order, port=trap.getsockname()[1]), 1, 3, Alarm())
    ends: list[bytes] = []

    def late(index: int) -> None:
        if index == 1:
            until(lambda: socket.create_connection((order.address, order.port)).close() is None)
            with socket.create_connection((order.address, order.port), HANG) as stranger:
                assert len(stranger.recv(16)) == 16
                stranger.sendall(seen.result(HANG))
                ends.append(stranger.recv(1))

    for each in meet_all(order, 3, late):
        each.close()
    assert ends == [b""]


def test_a_stranger_at_the_port_of_the_next_member_is_found_out(order, monkeypatch):
    right = rendezvous._Meeting._welcome

    def wrong(self, proof: bytes, table: bytes = b"") -> bytes:
        return right(self, proof, table) if table else os.urandom(32)

    monkeypatch.setattr(rendezvous._Meeting, "_welcome", wrong)
    before = len(os.listdir("/proc/self/fd"))
    alarms = [Alarm(), Alarm()]
    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(meet, order, index, 2, alarms[index]) for index in range(2)]
        assert all(isinstance(each.exception(), GroupBroken) for each in told)
    for alarm in alarms:
        alarm.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_order_without_a_key_forms_no_group(order):
    with pytest.raises(GroupBroken, match="key"):
        meet(replace(order, key=""), 0, 2, Alarm())


def test_silent_strangers_do_not_keep_members_out(order, monkeypatch):
    monkeypatch.setattr(rendezvous, "_MOST_STRANGERS", 4)
    strangers: list[socket.socket] = []

    def late(index: int) -> None:
        if index == 1:
            until(lambda: socket.create_connection((order.address, order.port)).close() is None)
            strangers.extend(
                socket.create_connection((order.address, order.port), HANG) for _ in range(20)
            )
            for each in strangers[:10]:  # the oldest are closed, once they had their challenge
                assert each.recv(16) and each.recv(1) == b""
        elif index == 2:  # a member that is slow to speak is as old as the strangers before it
            until(lambda: len(strangers) == 20)

    for each in [*meet_all(order, 3, late), *strangers]:
        each.close()


def test_who_is_missing_is_named_and_nothing_stays_open(order, monkeypatch):
    monkeypatch.setattr(rendezvous, "FORM_TIMEOUT", 0.5)
    before = len(os.listdir("/proc/self/fd"))
    alarms = [Alarm(), Alarm()]
    with ThreadPoolExecutor(2) as pool:
        told = [pool.submit(meet, order, index, 3, alarms[index]) for index in range(2)]
        why = [str(each.exception()) for each in told]
    assert "did not come within 0.5 s, counted from 0: [2]" in why[0]
    for alarm in alarms:
        alarm.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("index", [0, 1])
def test_an_alarm_ends_a_meeting_to_which_nobody_comes(order, index):
    alarm = Alarm()
    threading.Timer(0.1, alarm.sound, ("interrupted",)).start()
    with pytest.raises(GroupBroken, match="interrupted"):
        meet(order, index, 2, alarm)
    alarm.close()


def test_a_port_that_is_taken_is_named(order):
    with socket.create_server((order.address, order.port)), pytest.raises(GroupBroken) as broken:
        meet(order, 0, 2, Alarm())
    assert f"127.0.0.1 port {order.port}" in str(broken.value)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(bytes(16) + (9).to_bytes(4) + bytes(32) + b"[1, 2, 3]", id="no key"),
        pytest.param(bytes(16) + (200_000).to_bytes(4) + bytes(32) + b"[" * 200_000, id="nested"),
        pytest.param(bytes(16) + b"\xff" * 4, id="4 GiB"),
        pytest.param(bytes(16) + (1 << 21).to_bytes(4), id="2 MiB"),
    ],
)
def test_another_program_at_the_port_is_no_member(order, reply):
    with socket.create_server((order.address, order.port)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(reply)
                while connection.recv(1 << 16):
                    pass

        threading.Thread(target=answer).start()
        with pytest.raises(GroupBroken, match=f"{order.address} port {order.port}"):
            meet(order, 1, 2, Alarm())


def test_a_member_does_not_meet_itself(order, monkeypatch):
    monkeypatch.setattr(rendezvous, "FORM_TIMEOUT", 0.3)
    tried: list[object] = []

    class OfThatPort(socket.socket):
        def __init__(self, *kind) -> None:
            super().__init__(*kind)
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind((order.address, order.port))
            tried.append(self)

    monkeypatch.setattr(rendezvous.socket, "socket", OfThatPort)
    with pytest.raises(GroupBroken, match="did not answer"):
        meet(order, 1, 2, Alarm())
    assert tried


def test_whatever_strangers_send_the_members_meet(order):
    """They send it to the first member while the others are on their way."""

    def late(index: int) -> None:
        if index:
            place = (order.address, order.port)
            until(lambda: answers(place, "127.0.0.1"))

            @quick
            @given(rubbish())
            def sent(content: bytes) -> None:
                send(place, content)

            if index == 1:
                sent()
                assert send_endlessly(place) < LITTLE

    for member in meet_all(order, 3, late):
        assert isinstance(member, Neighbours)
        member.close()


def test_whatever_answers_at_the_port_of_the_first_member_the_group_is_only_not_formed(order):
    @quick
    @given(rubbish())
    def met(content: bytes) -> None:
        with answerer(content) as (address, port), pytest.raises(GroupBroken) as found:
            meet(replace(order, address=address, port=port), 1, 3, Alarm())
        assert "\x1b" not in str(found.value)

    met()
