"""The proof that a node's connections reach the others, over loopback."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from support.facts import assert_names

from hearth.base import packet_filter
from hearth.supervisor import reach
from hearth.supervisor.reach import Proved, Reach
from hearth.transfer.serving import FileServer

SECRET = "of the run"
DESK = "127.0.0.2"
ADDRESSES = {"desk": DESK, "shelf": "127.0.0.3"}
JOINING = ("shelf",)


@contextmanager
def serving(secret: str = SECRET) -> Iterator[FileServer]:
    server = FileServer(DESK, 0, secret, ["127.0.0.1"])
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """Yield a port of another program, which answers whatever comes."""
    with socket.create_server((DESK, 0)) as listener:
        listener.settimeout(10)

        def serve() -> None:
            with listener.accept()[0] as line:
                line.recv(4096)
                try:
                    line.sendall(answer)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def prove(scene: Callable[[Reach, asyncio.Queue], object]) -> None:
    async def play() -> None:
        events: asyncio.Queue = asyncio.Queue()
        await scene(Reach(SECRET, ADDRESSES, events, asyncio.create_task), events)

    asyncio.run(asyncio.wait_for(play(), 30))


def test_a_node_that_answers_is_reached_for_those_that_join_now():
    async def scene(own: Reach, events: asyncio.Queue) -> None:
        own.prove({"desk": server.port}, JOINING)
        assert own.reached == ()
        assert await events.get() == Proved("desk")
        assert (own.reached, own.unreached, own.joining) == (("desk",), {}, JOINING)
        own.prove({"desk": server.port}, JOINING)
        own.prove({}, ())
        assert own.reached == ()
        own.prove({"desk": server.port}, JOINING)  # the same node again, and another proof
        assert own.reached == ()
        await events.get()
        assert own.reached == ("desk",)
        own.forget("desk")
        assert own.reached == ()

    with serving() as server:
        prove(scene)


def test_a_firewall_is_named_and_tried_again_later_and_later(monkeypatch):
    monkeypatch.setattr(reach, "TIMEOUT", 0.2)
    now = reach.boot_clock()
    monkeypatch.setattr(reach, "boot_clock", lambda: now)

    async def scene(own: Reach, events: asyncio.Queue) -> None:
        nonlocal now
        packet_filter.admit_only(server.socket, ())
        for pause in (reach.AGAIN, 2 * reach.AGAIN, 4 * reach.AGAIN):
            own.prove({"desk": server.port}, JOINING)
            await events.get()
            assert_names(own.unreached["desk"], DESK, f"port {server.port}", "firewall")
            now += pause - 0.1
            own.prove({"desk": server.port}, JOINING)
            await asyncio.sleep(0.3)
            assert events.empty()
            now += 0.1
        packet_filter.admit_only(server.socket, ["127.0.0.1"])
        own.prove({"desk": server.port}, JOINING)
        await events.get()
        assert (own.reached, own.unreached) == (("desk",), {})

    with serving() as server:
        prove(scene)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\xff" * 100,
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nProof: \xd8\xff\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nProof: " + b"0" * 64 + b"\r\n\r\n",
        b"x" * 1_000_000,
        b"HTTP/1.0 \xb2\xb2\xb2 OK\r\n" * 9,
    ],
)
def test_another_program_is_not_the_node(answer):
    async def scene(own: Reach, events: asyncio.Queue) -> None:
        own.prove({"desk": port}, JOINING)
        assert await events.get() == Proved("desk")
        assert own.reached == ()
        assert_names(own.unreached["desk"], DESK)

    with answering(answer) as port:
        prove(scene)


def test_a_server_of_another_run_is_not_the_node():
    async def scene(own: Reach, events: asyncio.Queue) -> None:
        own.prove({"desk": server.port}, JOINING)
        await events.get()
        assert_names(own.unreached["desk"], "another program")

    with serving("of another run") as server:
        prove(scene)


def test_nothing_else_waits_for_a_proof(monkeypatch):
    async def scene(own: Reach, events: asyncio.Queue) -> None:
        packet_filter.admit_only(server.socket, ())
        own.prove({"desk": server.port}, JOINING)
        loop, late = asyncio.get_running_loop(), 0.0
        end = loop.time() + 0.5
        while (before := loop.time()) < end:
            await asyncio.sleep(0.01)
            late = max(late, loop.time() - before - 0.01)
        assert late < 0.25  # of two busy cores
        own.close()

    with serving() as server:
        prove(scene)
