"""Bulk traffic that leaves room for heartbeats: little of it waits within the network."""

from __future__ import annotations

import array
import fcntl
import socket
import termios
import threading
import time

import pytest

from hearth.transfer.serving import send_yielding

FIRST = 32 << 10


@pytest.fixture
def pair():
    """Yield both ends of a connection whose receiving kernel takes few bytes at once."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname(), 20) as sender:
            receiver, _ = listener.accept()
            with receiver:
                yield sender, receiver


def unsent(sender: socket.socket) -> int:
    waiting = array.array("i", [0])
    fcntl.ioctl(sender, termios.TIOCOUTQ, waiting)
    return waiting[0]


def test_over_a_slow_link_no_more_than_a_part_of_a_second_is_on_its_way(pair):
    sender, receiver = pair
    queues, got = [], bytearray()

    def read_slowly() -> None:
        while len(got) < 120_000:
            got.extend(receiver.recv(2000))
            queues.append(unsent(sender))
            time.sleep(0.02)  # 100 kB/s

    content = bytes(range(250)) * 480
    reader = threading.Thread(target=read_slowly, daemon=True)
    reader.start()
    part = send_yielding(sender, content, FIRST)
    reader.join(20)
    assert bytes(got) == content
    assert part < FIRST * 1.5  # about a quarter of a second
    assert max(queues) <= FIRST
    assert max(queues[len(queues) // 2 :]) <= 1.5 * part


def test_over_a_fast_link_the_parts_grow(pair):
    sender, receiver = pair
    size = 8 << 20

    def read() -> None:
        left = size
        while left:
            left -= len(receiver.recv(1 << 20))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert send_yielding(sender, bytes(size), FIRST) > FIRST
    reader.join(20)


def test_a_side_that_has_gone_ends_the_sending(pair):
    sender, receiver = pair
    receiver.close()
    with pytest.raises(OSError):
        send_yielding(sender, bytes(1 << 20), FIRST)
