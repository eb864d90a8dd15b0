"""HTTP server for the nodes behind this one in the chain, for as long as they send requests.

    GET /table                 the table of files and pieces (JSON)
    GET /piece/KEY/FILE/PIECE  a piece, by the numbers of file and piece in the table

A request for a piece that has not arrived waits a moment, then gets 503: retry. Every request is
authenticated with the secret of this one call, which itself never travels between nodes.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any

from hearth.base.packet_filter import admit_only, is_allowed
from hearth.transfer.holding import Holding
from hearth.transfer.pieces import Table

WAIT = 1.0
"""Seconds that a request waits for a piece that has not arrived."""

_IDLE_LINE = 60.0

_LINES = 4
"""Connections for each allowed address; a node needs one, and a lost one may linger."""


def proof(secret: str, path: str) -> str:
    """Return the authentication code of a request for `path`."""
    return hmac.new(secret.encode(), path.encode(), hashlib.sha256).hexdigest()


class Giving(socketserver.ThreadingTCPServer):
    """HTTP server on one address for the nodes of the chain only; a connection takes a thread.

    Raises `OSError` if it cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, address: str, port: int, secret: str, allowed: Iterable[str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.secret, self._allowed = secret, tuple(allowed)
        self.holdings: dict[str, Holding] = {}
        self.text: bytes | None = None
        self._last = time.monotonic()
        self._lines = threading.BoundedSemaphore(_LINES * len(self._allowed))
        super().__init__((address, port), _Handler)

    def server_bind(self) -> None:
        """Bind the socket, which answers the allowed addresses only."""
        self._filtered = admit_only(self.socket, self._allowed)
        super().server_bind()

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether a connection is from an allowed address."""
        return self._filtered or is_allowed(client_address[0], self._allowed)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or close it if too many are open."""
        if self._lines.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._lines.release()

    def show(self, table: Table, holdings: Iterable[Holding]) -> None:
        """Start serving the table and the available pieces of these holdings."""
        self.holdings = {holding.item.key: holding for holding in holdings}
        self.text = table.text().encode()

    def asked(self) -> None:
        """Note the time of a request."""
        self._last = time.monotonic()

    @property
    def idle(self) -> float:
        """Seconds since the last request."""
        return time.monotonic() - self._last

    def handle_error(self, request: object, client_address: object) -> None:
        """Log errors of this node; ignore clients that disconnect."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Giving
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_LINE
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Answer one request."""
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given, proof(self.server.secret, self.path)):
            return self._answer(HTTPStatus.FORBIDDEN)
        self.server.asked()
        match self.path.split("/")[1:]:
            case ["table"]:
                body = self.server.text
            case ["piece", key, file, piece] if key in self.server.holdings:
                try:
                    body = self.server.holdings[key].read(int(file), int(piece), WAIT)
                except (ValueError, IndexError):
                    return self._answer(HTTPStatus.NOT_FOUND)
            case ["piece", *_] if self.server.text is None:
                body = None
            case _:
                return self._answer(HTTPStatus.NOT_FOUND)
        if body is None:
            return self._answer(HTTPStatus.SERVICE_UNAVAILABLE)
        self._answer(HTTPStatus.OK, body)
        self.server.asked()

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing: the courier records its progress."""
