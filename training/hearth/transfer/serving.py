"""The file server of a node: HTTP for the other nodes of a call or a run.

    GET [/NAME]/table                 the table of files and pieces (JSON)
    GET [/NAME]/piece/KEY/FILE/PIECE  a piece, by the numbers of file and piece in the table
    GET /reach/NONCE                  proves that the caller reaches this node, and which it is

A request for something that has not arrived waits a moment, then gets 503: retry. Every request is
authenticated with the secret of the call or the run, which itself never travels between nodes; so
is the answer, save pieces, whose checksums the table has. Any other request gets a status alone.
"""

from __future__ import annotations

import array
import fcntl
import hashlib
import hmac
import os
import socket
import socketserver
import sys
import termios
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO

from hearth.base.json_lines import same
from hearth.base.packet_filter import listening
from hearth.transfer.holding import Holding
from hearth.transfer.pieces import Table, checksum

PROOF = "Proof"
"""Header of an answer: its authentication code."""

LINES = 8
"""Connections for each address; a node needs two, and lost ones may linger."""

_WAIT = 1.0
"""Seconds that a request waits for a piece that has not arrived."""

_LONGEST_HEAD = 16 << 10
"""Bytes of the head of a request behind its first line."""

_POLL = 0.1
"""Seconds until a server notices that it is to stop."""

_IDLE_LINE = 60.0
"""Seconds before a silent connection is closed."""

_PART_SECONDS = 0.25
"""Seconds that bytes on their way may keep others waiting, on a link of any speed."""

_FIRST_PART, _LEAST_PART = 32 << 10, 4 << 10
"""Bytes on their way at first, while the speed of the link is unknown, and at least."""

_GLANCE = 0.0005
"""Seconds until the first look whether bytes have arrived; twice as many until each next one."""

_STRANGER = 10.0
"""Likewise for a connection without a valid request so far."""


def proof(secret: str, path: str) -> str:
    """Return the authentication code of a request for `path`."""
    return hmac.new(secret.encode(), path.encode(), hashlib.sha256).hexdigest()


def answer_proof(secret: str, path: str, body: bytes) -> str:
    """Return the authentication code of the answer `body` to a request for `path`."""
    return proof(secret, f"{path} {checksum(body)}")


@dataclass(frozen=True)
class Offer:
    """Files that a server offers: the table's text, None until it is made, and its items."""

    text: bytes | None = None
    holdings: dict[str, Holding] = field(default_factory=dict)


class FileServer(socketserver.ThreadingTCPServer):
    """HTTP server on one address for the `allowed` ones only; a connection takes a thread.

    An address has a bounded number of connections: a new one ends the oldest that has sent no valid
    request, so that a stranger on a node cannot keep the node itself out.

    Port 0 takes any free one. Raises `OSError` if it cannot listen there.
    """

    daemon_threads = True

    def __init__(self, address: str, port: int, secret: str, allowed: Iterable[str]) -> None:
        self.secret = secret
        self._offers: dict[str, Offer] = {"": Offer()}
        self._last = time.monotonic()
        self._lines: dict[str, dict[socket.socket, bool]] = {}
        self._counting = threading.Lock()
        super().__init__((address, port), _FileHandler, bind_and_activate=False)
        self.socket.close()
        self.socket = self._listener = listening(address, port, allowed)

    @property
    def port(self) -> int:
        """The port of this server."""
        return int(self.socket.getsockname()[1])

    def admit(self, address: str) -> None:
        """Answer another address, too."""
        self._listener.admit(address)

    def start(self) -> None:
        """Serve from now on, in threads that end with the process."""
        threading.Thread(target=self.serve_forever, args=[_POLL], daemon=True).start()

    def stop(self) -> None:
        """Stop a server that was started, and end its connections."""
        self.shutdown()
        self.server_close()
        with self._counting:
            for lines in self._lines.values():
                for line in lines:
                    _hang_up(line)

    def show(self, table: Table, holdings: Iterable[Holding], name: str = "") -> None:
        """Start serving the table and the available pieces of these holdings."""
        by_key = {holding.item.key: holding for holding in holdings}
        self._offers[name] = Offer(table.text().encode(), by_key)

    def offer(self, name: str) -> Offer | None:
        """Return the files offered by this name, None if there are none."""
        return self._offers.get(name)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        with self._counting:
            lines = self._lines.setdefault(client_address[0], {})
            if len(lines) >= LINES:
                oldest = next((line for line, proved in lines.items() if not proved), None)
                if oldest is None:
                    self.shutdown_request(request)
                    return
                del lines[oldest]
                _hang_up(oldest)
            lines[request] = False
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._counting:
                self._lines[client_address[0]].pop(request, None)

    def proved(self, line: socket.socket, address: str) -> None:
        """Note a valid request of a connection."""
        self._last = time.monotonic()
        with self._counting:
            lines = self._lines[address]
            if not lines.get(line, True):
                lines[line] = True
                line.settimeout(_IDLE_LINE)

    def note_request(self) -> None:
        """Reset the idle time."""
        self._last = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds since the last request."""
        return time.monotonic() - self._last

    def handle_error(self, request: object, client_address: object) -> None:
        """Log errors of this node; ignore clients that disconnect."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Head:
    """The head of a request, at most `_LONGEST_HEAD` bytes long."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._left = file, _LONGEST_HEAD

    def readline(self, size: int) -> bytes:
        """Return the next line. Raises `HTTPException` if the head is too long."""
        line = self._file.readline(min(size, self._left + 1))
        self._left -= len(line)
        if self._left < 0:
            raise HTTPException("the head of a request is too long")
        return line


class _FileHandler(BaseHTTPRequestHandler):
    server: FileServer
    protocol_version = "HTTP/1.1"
    timeout = _STRANGER
    disable_nagle_algorithm = True
    _part = _FIRST_PART

    def parse_request(self) -> bool:
        """Read the head of a request; return whether it is one."""
        whole, self.rfile = self.rfile, _Head(self.rfile)  # type: ignore[assignment]
        try:
            return super().parse_request()
        finally:
            self.rfile = whole

    def do_GET(self) -> None:
        """Answer one request."""
        secret = self.server.secret
        if not same(self.headers.get("Authorization", ""), proof(secret, self.path)):
            return self._answer(HTTPStatus.FORBIDDEN)
        self.server.proved(self.connection, self.client_address[0])
        match self.path.split("/")[1:]:
            case ["reach", _]:
                return self._answer(HTTPStatus.OK, b"", answer_proof(secret, self.path, b""))
            case [*name, "table"]:
                offer = self.server.offer("/".join(name))
            case [*name, "piece", key, file, piece]:
                offer = self.server.offer("/".join(name))
                if offer and offer.text is not None:
                    return self._piece(offer, key, file, piece)
            case _:
                offer = None
        if offer is None:
            return self._answer(HTTPStatus.NOT_FOUND)
        if offer.text is None:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
        self._answer(HTTPStatus.OK, offer.text, answer_proof(secret, self.path, offer.text))
        self.server.note_request()

    def _piece(self, offer: Offer, key: str, file: str, piece: str) -> None:
        """Answer a request for a piece."""
        try:
            content = offer.holdings[key].read(int(file), int(piece), _WAIT)
        except (ValueError, LookupError):
            return self._answer(HTTPStatus.NOT_FOUND)
        if content is None:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
        self._answer(HTTPStatus.OK, content)
        self.server.note_request()

    def _answer(self, status: HTTPStatus, body: bytes = b"", proved: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if proved:
            self.send_header(PROOF, proved)
        self.end_headers()
        self._part = send_yielding(self.connection, body, self._part)

    def send_error(self, code: int, *_: Any) -> None:
        """Refuse an invalid request, and hang up."""
        self.close_connection = True
        self._answer(HTTPStatus(code))

    def log_message(self, *_: object) -> None:
        """Log nothing: who fetches records the progress."""


def send_yielding(connection: socket.socket, content: bytes, part: int) -> int:
    """Send bytes so that little of them waits within the network; return the part to go on with.

    A slow link has a queue, in which whatever else is sent, such as a heartbeat, waits behind them.
    So no more than a `part` is on its way at one time: as many bytes as take about `_PART_SECONDS`.
    Measured at 200 kbit/s: heartbeats beside it are late by 0.7 s at most, by 10 s otherwise.
    """
    rest = memoryview(content)
    while rest:
        began = time.monotonic()
        sent = min(part, len(rest))
        connection.sendall(rest[:sent])
        pause = _GLANCE
        while _on_the_way(connection):
            if time.monotonic() - began > _IDLE_LINE:
                raise TimeoutError("the other side takes no bytes")
            time.sleep(pause)
            pause = min(2 * pause, _PART_SECONDS / 4)
        took = max(time.monotonic() - began, 1e-4)
        if sent == part or took > _PART_SECONDS:
            part = round(max(_LEAST_PART, min(4 * part, sent * _PART_SECONDS / took)))
        rest = rest[sent:]
    return part


def _on_the_way(connection: socket.socket) -> int:
    """Return the bytes sent on a connection that have not arrived. Raises OSError if it broke."""
    if error := connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(error, os.strerror(error))
    waiting = array.array("i", [0])
    fcntl.ioctl(connection, termios.TIOCOUTQ, waiting)
    return waiting[0]


def _hang_up(line: socket.socket) -> None:
    """Have the thread of a connection find that it is closed."""
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
