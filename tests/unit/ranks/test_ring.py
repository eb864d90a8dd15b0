"""Collectives of a ring: what every member gets, and how a ring ends."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rubbish import quick, rubbish
from support.waiting import HANG

from hearth.ranks import ring as module
from hearth.ranks.alarm import Alarm, GroupBroken
from hearth.ranks.rendezvous import Neighbours
from hearth.ranks.ring import Ring


def rings(size: int, patience: float = HANG) -> list[Ring]:
    """Return the members of a ring within this process."""
    pairs = [socket.socketpair() for _ in range(size)]  # each from a member to the one behind
    for each in (end for pair in pairs for end in pair):
        each.setblocking(False)
    names = [f"rank {index}" for index in range(size)]
    return [
        Ring(Neighbours(pairs[index - 1][1], pairs[index][0]), index, names, Alarm(), patience)
        for index in range(size)
    ]


def together(members: list[Ring], act: Callable[[int, Ring], Any]) -> list[Any]:
    """Call `act` on all members at once and return the results in order."""
    with ThreadPoolExecutor(len(members)) as pool:
        found = list(pool.map(act, range(len(members)), members))
    for each in members:
        each.close()
    return found


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(0, 40), st.data())
def test_every_member_gets_the_same_sum(size, length, data):
    kind = data.draw(st.sampled_from([torch.float64, torch.float32, torch.int64, torch.bfloat16]))
    numbers = st.lists(st.integers(-9, 9), min_size=length, max_size=length)
    own = [torch.tensor(data.draw(numbers), dtype=kind) for _ in range(size)]
    expected = torch.stack(own).sum(dim=0)

    def sums(index: int, member: Ring) -> torch.Tensor:
        for _ in range(2):  # nothing of the first is left on the way
            buffer = own[index].clone()
            member.sum(buffer)
        return buffer

    for found in together(rings(size), sums):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("shape", [(), (1,), (7, 3), (2_000_003,)])
def test_sums_have_any_shape(shape):
    def sums(index: int, member: Ring) -> torch.Tensor:
        buffer = torch.full(shape, index + 0.5)
        member.sum(buffer)
        return buffer

    for found in together(rings(3), sums):
        assert torch.equal(found, torch.full(shape, 4.5))


def test_unlike_summands_give_the_same_bits_on_all_members():
    generator = torch.Generator().manual_seed(1)
    own = [torch.randn(10_007, generator=generator) for _ in range(4)]

    def sums(index: int, member: Ring) -> torch.Tensor:
        member.sum(own[index])
        return own[index]

    first, *others = together(rings(4), sums)
    assert all(torch.equal(first, other) for other in others)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.data())
def test_values_and_bytes_reach_every_member(size, data):
    json = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    )
    own = [data.draw(json) for _ in range(size)]
    source = data.draw(st.integers(0, size - 1))
    content = data.draw(st.binary(max_size=50)) * data.draw(st.sampled_from([1, 100_000]))

    def talk(index: int, member: Ring) -> tuple[Any, ...]:
        everyone = member.gather(own[index])
        passed = member.bytes_from(source, content if index == source else b"other")
        buffer = torch.full((3,), float(index))
        member.broadcast(buffer, source)
        member.barrier()
        return everyone, passed, buffer.tolist()

    for everyone, passed, copied in together(rings(size), talk):
        assert everyone == own
        assert passed == content
        assert copied == [float(source)] * 3


def test_a_lost_member_breaks_the_ring_in_the_middle_of_a_sum():
    members = rings(3)

    def sums(index: int, member: Ring) -> str:
        if index == 2:
            member._neighbours.behind.send(b"half a header")
            member.close()
            return ""
        with pytest.raises(GroupBroken) as broken:
            member.sum(torch.zeros(3_000_000))
        member.close()
        return str(broken.value)

    assert all("rank" in why for why in together(members, sums)[:2])


def test_an_alarm_ends_the_waiting_for_a_member_that_does_nothing():
    members = rings(2)
    alarm = members[0]._alarm
    threading.Timer(0.1, alarm.sound, ("laptop was lost",)).start()
    with pytest.raises(GroupBroken, match="laptop was lost"):
        members[0].sum(torch.zeros(5_000_000))
    with pytest.raises(GroupBroken, match="laptop was lost"):
        members[0].barrier()


def test_patience_ends():
    members = rings(2, patience=0.2)
    began = time.monotonic()
    with pytest.raises(GroupBroken, match=r"rank 1 did nothing for 0\.2 s"):
        members[0].barrier()
    assert time.monotonic() - began >= 0.2


def test_members_that_do_different_things_find_out():
    def act(index: int, member: Ring) -> str:
        with pytest.raises(GroupBroken) as broken:
            member.sum(torch.zeros(4)) if index else member.barrier()
        return str(broken.value)

    why = together(rings(2), act)
    assert "rank 1 is elsewhere: sum 16 there, gather 0 here" in why


def test_large_contents_are_passed_on_in_pieces(monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 10)
    content = bytes(range(256))

    def act(index: int, member: Ring) -> bytes:
        buffer = torch.full((11,), index)
        member.sum(buffer)
        assert buffer.tolist() == [6] * 11
        return member.bytes_from(1, content if index == 1 else b"")

    assert together(rings(4), act) == [content] * 4


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" * 200_000, id="nested"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b'"\\ud800"', id="escaped surrogate"),
        pytest.param(b'"\xed\xa0\x80"', id="surrogate"),
        pytest.param(b"9" * 5000, id="long number"),
    ],
)
def test_malformed_json_breaks_the_group(content):
    first, second = rings(2)
    message = struct.pack("!8sQQ", b"gather", 0, len(content)) + content
    second._neighbours.behind.send(message)
    with pytest.raises(GroupBroken, match="rank 1 sent no valid JSON"):
        first.gather("own")
    for each in (first, second):
        each.close()


@pytest.mark.parametrize("length", [(1 << 30) + 1, 1 << 32, 1 << 40, (1 << 64) - 1])
@pytest.mark.parametrize("what", ["gather", "bytes"])
def test_an_enormous_length_breaks_the_group(length, what):
    first, second = rings(2)
    second._neighbours.behind.send(struct.pack("!8sQQ", what.encode(), what == "bytes", length))
    with pytest.raises(GroupBroken, match="rank 1 announces"):
        first.gather("own") if what == "gather" else first.bytes_from(1, b"")
    for each in (first, second):
        each.close()


@quick
@given(rubbish(), st.sampled_from(["gather", "bytes", "sum"]))
def test_whatever_a_member_sends_only_breaks_the_group(content, what):
    first, second = rings(2)
    second._neighbours.behind.send(content[:60_000])
    second.close()
    with pytest.raises(GroupBroken):
        match what:
            case "gather":
                first.gather("own")
            case "bytes":
                first.bytes_from(1, b"")
            case "sum":
                first.sum(torch.ones(3))
    first.close()


def test_a_lone_surrogate_of_a_member_itself_does_not_break_the_group():
    def act(index: int, member: Ring) -> list[str]:
        return member.gather("\udcff.jsonl")

    assert together(rings(2), act) == [["?.jsonl"] * 2] * 2


def delayed(size: int, delay: float) -> list[Ring]:
    """Return the members of a ring whose connections deliver everything after `delay` seconds."""
    ends = [[socket.socketpair() for _ in range(2)] for _ in range(size)]

    def deliver(source: socket.socket, target: socket.socket) -> None:
        on_the_way: SimpleQueue[tuple[float, bytes]] = SimpleQueue()

        def read() -> None:
            while content := source.recv(1 << 16):
                on_the_way.put((time.monotonic() + delay, content))
            on_the_way.put((0, b""))

        threading.Thread(target=read, daemon=True).start()
        with target:
            while (due := on_the_way.get())[1]:
                time.sleep(max(0, due[0] - time.monotonic()))
                target.sendall(due[1])

    for (_, source), (target, _) in ends:
        threading.Thread(target=deliver, args=(source, target), daemon=True).start()
    for (out, _), (_, into) in ends:
        out.setblocking(False)
        into.setblocking(False)
    names = [f"rank {index}" for index in range(size)]
    return [
        Ring(Neighbours(ends[index - 1][1][1], ends[index][0][0]), index, names, Alarm(), HANG)
        for index in range(size)
    ]


def test_a_sum_takes_the_delays_of_its_steps_whatever_its_number_of_pieces(monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 1 << 10)
    delay, size = 0.05, 3

    def sums(index: int, member: Ring) -> tuple[bool, float]:
        buffer = torch.full((size * 40 << 8,), float(index))  # 40 pieces a part
        member.barrier()
        began = time.monotonic()
        member.sum(buffer)
        return bool((buffer == 3).all()), time.monotonic() - began

    found = together(delayed(size, delay), sums)
    assert all(right for right, _ in found)
    # Piece after piece it would take 2 * 2 * 40 delays.
    assert max(seconds for _, seconds in found) < 20 * delay


SLOW = 6.0
"""Mbit/s of a throttled hop."""


def throttled(source: socket.socket, target: socket.socket) -> None:
    """Pass on what comes from a socket at SLOW."""
    due = time.monotonic()
    with suppress(OSError):
        while content := source.recv(1448):
            # Catch up after a sleep that was longer than asked for.
            due = max(due, time.monotonic() - 0.02) + len(content) * 8e-6 / SLOW
            time.sleep(max(0.0, due - time.monotonic()))
            target.sendall(content)


def connected(slow: bool) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection over loopback, throttled by a proxy if it is `slow`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        far, _ = listener.accept()
        if not slow:
            return near, far
        back = socket.create_connection(listener.getsockname())
        end, _ = listener.accept()
    back.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    threading.Thread(target=throttled, args=(far, back), daemon=True).start()
    return near, end


MEMBER = """
import json, socket, sys, time
import torch
from hearth.ranks.alarm import Alarm
from hearth.ranks.rendezvous import Neighbours
from hearth.ranks.ring import Ring

torch.set_num_threads(1)
before, behind, index, late, patience, *lengths = map(float, sys.argv[1:])
neighbours = Neighbours(*(socket.socket(fileno=int(each)) for each in (before, behind)))
for each in (neighbours.before, neighbours.behind):
    each.setblocking(False)
member = Ring(neighbours, int(index), ["0", "1", "2"], Alarm(), patience)
member.barrier()
found = []
for length in lengths:
    time.sleep(late)
    found.append(member.sum(torch.ones(int(length))).mbit)
print(json.dumps(found))
"""
"""A member in a process of its own: it computes for some seconds, sums, and tells of the hop."""


def test_a_slow_hop_is_measured_as_it_is_and_waiting_for_others_is_no_slow_hop():
    # One computes much longer than the others; the hop from 1 to 2 is throttled.
    late, ends = (0.0, 0.3, 0.0), [connected(slow=index == 1) for index in range(3)]
    lengths = [30_000, 300_000]
    members = []
    for index in range(3):
        own = [ends[index - 1][1].fileno(), ends[index][0].fileno()]
        words = map(str, [*own, index, late[index], HANG, *lengths])
        command = [sys.executable, "-c", MEMBER, *words]
        members.append(subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=own))
    for each in (end for pair in ends for end in pair):
        each.close()
    first, second, third = (json.loads(each.communicate(timeout=HANG)[0]) for each in members)
    # Less if the throttle itself had to wait for a processor.
    assert all(0.6 * SLOW < mbit < 1.2 * SLOW for mbit in third)
    # What comes at once shows no speed.
    assert all(mbit is None or mbit > 10 * SLOW for mbit in (*first, *second))
