"""File servers that strangers call, and clients that an odd program answers."""

from __future__ import annotations

import socket
import socketserver
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.client import HTTPConnection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rubbish import LITTLE, answerer, quick, rubbish, send, send_endlessly
from support.waiting import until

from hearth.base.errors import SupplyError
from hearth.base.interface import Peer
from hearth.transfer import fetching, serving
from hearth.transfer.fetching import FileClient
from hearth.transfer.pieces import Table
from hearth.transfer.serving import LINES, FileServer, answer_proof, proof

SECRET = "of this test"
HERE, THERE = "127.0.0.1", "127.0.0.2"


@pytest.fixture(scope="module")
def server() -> Iterator[FileServer]:
    server = FileServer(HERE, 0, SECRET, [HERE, THERE])
    server.show(Table(1, ()), [])
    server.bugs = []
    with pytest.MonkeyPatch.context() as patch:
        note = lambda *_: server.bugs.append(sys.exception())  # noqa: E731
        patch.setattr(socketserver.BaseServer, "handle_error", note)
        server.start()
        yield server
        server.stop()


def is_reached(server: FileServer, source: str = HERE) -> bool:
    """Return whether a node reaches the server from an address."""
    line = HTTPConnection(HERE, server.port, 5, source_address=(source, 0))
    line.request("GET", "/reach/1", headers={"Authorization": proof(SECRET, "/reach/1")})
    found = line.getresponse()
    line.close()
    return found.headers["Proof"] == answer_proof(SECRET, "/reach/1", b"")


@quick
@given(rubbish())
def test_whatever_strangers_send_the_server_answers_the_nodes(server, content):
    send((HERE, server.port), content)
    assert is_reached(server)
    assert server.bugs == []


@quick
@given(st.text(st.characters(codec="latin-1", exclude_characters="\r\n "), max_size=80))
def test_whatever_path_a_node_asks_for_it_gets_a_status(server, path):
    line = socket.create_connection((HERE, server.port), 5)
    asked = f"/{path}"
    head = f"GET {asked} HTTP/1.0\r\nAuthorization: {proof(SECRET, asked)}\r\n\r\n"
    line.sendall(head.encode("latin-1"))
    assert line.recv(100).startswith(b"HTTP/1.1 ")
    line.close()
    assert server.bugs == []


def test_a_line_without_an_end_takes_no_memory(server):
    assert send_endlessly((HERE, server.port)) < LITTLE
    assert is_reached(server)


def test_a_request_with_an_endless_head_takes_no_memory(server):
    with socket.create_connection((HERE, server.port), 5) as line:
        with suppress(OSError):
            line.sendall(b"GET /table HTTP/1.1\r\n" + (b"a: " + b"b" * 60_000 + b"\r\n") * 90)
        with suppress(ConnectionError):
            assert line.recv(99).startswith(b"HTTP/1.1 431 ")
    assert is_reached(server)
    assert server.bugs == []


def test_a_stranger_who_holds_connections_keeps_neither_its_own_node_nor_others_out(server):
    with ExitStack() as lines:
        for _ in range(20 * LINES):
            lines.enter_context(socket.create_connection((HERE, server.port)))
        until(lambda: len(server._lines[HERE]) <= LINES)
        assert is_reached(server)
        assert is_reached(server, THERE)


def test_connections_of_a_node_that_has_proved_itself_stay(server):
    line = HTTPConnection(HERE, server.port, 5, source_address=(THERE, 0))
    head = {"Authorization": proof(SECRET, "/table")}
    line.request("GET", "/table", headers=head)
    line.getresponse().read()
    with ExitStack() as lines:
        for _ in range(3 * LINES):
            stranger = socket.create_connection((HERE, server.port), source_address=(THERE, 0))
            lines.enter_context(stranger)
        time.sleep(0.2)
        line.request("GET", "/table", headers=head)
        assert line.getresponse().status == 200
    line.close()


def test_who_says_nothing_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(serving._FileHandler, "timeout", 0.2)
    server = FileServer(HERE, 0, SECRET, [HERE])
    server.start()
    with socket.create_connection((HERE, server.port), 5) as line:
        assert line.recv(1) == b""
    until(lambda: not server._lines[HERE])
    server.stop()


@quick
@given(rubbish() | st.binary(max_size=99).map(lambda body: b"HTTP/1.1 200 OK\r\n\r\n" + body))
def test_whatever_an_answerer_sends_a_client_goes_to_the_next_or_says_so(content):
    with answerer(content) as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "_RETRY", 0)
        client = FileClient(HERE, [Peer("odd", *place)], SECRET, lambda _: None, starting=0)
        with pytest.raises(SupplyError) as found:
            client.table()
        client.close()
    assert "\x1b" not in str(found.value)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 999999999999\r\n"])
def test_an_answer_without_an_end_takes_no_memory(length, monkeypatch):
    monkeypatch.setattr(fetching, "LONGEST_TABLE", 1 << 20)
    monkeypatch.setattr(fetching, "_RETRY", 0)
    with answerer(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n" + b"x" * (8 << 20)) as place:
        client = FileClient(HERE, [Peer("odd", *place)], SECRET, lambda _: None, starting=0)
        with pytest.raises(SupplyError):
            client.table()
        client.close()
