"""Listening sockets that only some addresses reach: the program, and the kernel that runs it."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strangers import answers

from hearth.base import packet_filter
from hearth.base.packet_filter import listening, program

IP_HEADER = -0x100000
four, six = st.ip_addresses(v=4), st.ip_addresses(v=6)
any_address = four | six


def header(source: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bytes:
    """Return an IP header without options, from `source`."""
    if source.version == 4:
        return b"\x45" + bytes(11) + source.packed + bytes(4)
    return b"\x60" + bytes(7) + source.packed + bytes(16)


def passed(code: list[tuple[int, int, int, int]], packet: bytes) -> int:
    """Interpret a classic BPF program and return the number of bytes that it passes."""
    at = value = 0
    while True:
        operation, if_true, if_false, operand = code[at]
        assert 0 <= if_true < 256 and 0 <= if_false < 256
        at += 1
        start = operand - (1 << 32) - IP_HEADER
        match operation:
            case 0x20:  # ld [k]
                assert 0 <= start <= len(packet) - 4
                value = int.from_bytes(packet[start : start + 4])
            case 0x30:  # ldb [k]
                value = packet[start]
            case 0x74:  # rsh #k
                value >>= operand
            case 0x15:  # jeq #k, if_true, if_false
                at += if_true if value == operand else if_false
            case 0x05:  # ja k
                at += operand
            case 0x06:  # ret #k
                return operand
            case _:
                raise AssertionError(f"no such instruction: {operation:#x}")


@given(st.lists(any_address, max_size=12), any_address)
def test_a_packet_passes_whole_if_its_source_is_allowed_and_else_not_at_all(allowed, source):
    code = program(map(str, allowed))
    for each in [*allowed, source]:
        assert passed(code, header(each)) == (0xFFFFFFFF if each in allowed else 0)


@given(st.lists(six, min_size=1, max_size=4), st.integers(0, 127))
def test_one_other_bit_of_an_address_is_a_stranger(allowed, bit):
    other = ipaddress.IPv6Address(int(allowed[0]) ^ 1 << bit)
    assert bool(passed(program(map(str, allowed)), header(other))) == (other in allowed)


@given(four, st.binary(min_size=12, max_size=12))
def test_an_allowed_ipv4_address_inside_another_familys_header_passes_nothing(allowed, rest):
    """An IPv6 source may hold any four bytes where an IPv4 header has its source."""
    source = ipaddress.IPv6Address(rest[:4] + allowed.packed + rest[4:])
    assert passed(program([str(allowed)]), header(source)) == 0


def test_the_zone_of_a_link_local_address_is_no_part_of_it():
    assert program(["fe80::1%eth0"]) == program(["fe80::1"])


def test_the_kernel_answers_the_nodes_and_no_stranger():
    nodes = ["127.0.0.1", "127.0.0.2", "fd00::1"]
    with listening("127.0.0.1", 0, nodes) as listener:
        reached = [f"127.0.0.{number}" for number in (1, 2, 3, 9)]
        assert [answers(listener.getsockname(), each) for each in reached] == [
            True,
            True,
            False,
            False,
        ]
        with socket.create_connection(
            listener.getsockname(), 5, source_address=("127.0.0.2", 0)
        ) as client:
            for _ in range(3):  # from 127.0.0.1 and 127.0.0.2 of above, then this one
                accepted, _ = listener.accept()
            with accepted:
                client.sendall(b"words")
                accepted.settimeout(5)
                assert accepted.recv(5) == b"words"


@pytest.mark.parametrize(("allowed", "answered"), [(["::1"], True), (["fd00::1"], False)])
def test_the_kernel_answers_over_ipv6_too(allowed, answered):
    with listening("::1", 0, allowed) as listener:
        assert answers(listener.getsockname()[:2], "::1") == answered


@pytest.mark.parametrize("network", ["10.0.0.0/24", "fd00::/120"])
def test_the_kernel_takes_a_filter_for_more_nodes_than_a_home_has(network):
    nodes = [str(each) for each in list(ipaddress.ip_network(network).hosts())[:40]]
    listening("127.0.0.1", 0, nodes).close()


def test_a_port_that_is_taken_is_an_error():
    with listening("127.0.0.1", 0, []) as taken, pytest.raises(OSError, match="in use"):
        listening(*taken.getsockname(), [])


def test_where_the_kernel_takes_no_filter_a_stranger_is_closed_at_once(monkeypatch):
    monkeypatch.setattr(packet_filter, "admit_only", lambda *_: False)
    with listening("127.0.0.1", 0, ["127.0.0.2"]) as listener:
        at = listener.getsockname()
        stranger = socket.create_connection(at, 10, ("127.0.0.9", 0))
        node = socket.create_connection(at, 10, ("127.0.0.2", 0))
        with stranger, node, listener.accept()[0] as accepted:
            assert accepted.getpeername()[0] == "127.0.0.2"
            assert stranger.recv(1) == b""
