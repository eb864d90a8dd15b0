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
import time
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler

from hearth.transfer.holding import Holding
from hearth.transfer.pieces import Table

WAIT = 1.0
"""Seconds that a request waits for a piece that has not arrived."""

_IDLE_LINE = 60.0


def proof(secret: str, path: str) -> str:
    """Return the authentication code of a request for `path`."""
    return hmac.new(secret.encode(), path.encode(), hashlib.sha256).hexdigest()


class Giving(socketserver.ThreadingTCPServer):
    """HTTP server on one address for the nodes of the chain only.

    Raises `OSError` if it cannot listen there.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 32

    def __init__(self, address: str, port: int, secret: str, allowed: Iterable[str]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.secret, self.allowed = secret, frozenset(allowed)
        self.holdings: dict[str, Holding] = {}
        self.text: bytes | None = None
        self._last = time.monotonic()
        super().__init__((address, port), _Handler)

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
        self.server.asked()
        given = self.headers.get("Authorization", "")
        known = self.client_address[0] in self.server.allowed
        if not known or not hmac.compare_digest(given, proof(self.server.secret, self.path)):
            return self._answer(HTTPStatus.FORBIDDEN)
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

    def _answer(self, status: HTTPStatus, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.server.asked()

    def log_message(self, *_: object) -> None:
        """Log nothing: the courier records its progress."""
