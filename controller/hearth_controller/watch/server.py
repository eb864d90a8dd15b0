"""The web server of the live page: read-only, and open to whoever knows its token."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hearth.base.errors import HearthError
from hearth_controller.report.live import PLACE

_SCRIPT = resources.files("hearth_controller.report").joinpath("live.js").read_bytes()
_COOKIE = "hearth"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}

Page = Callable[[str], str | None]
"""Returns the page of a run, that of the newest for '', and None for an unknown one."""


class PageServer(ThreadingHTTPServer):
    """Serves pages at an address of this computer; beyond loopback it asks for a token.

    Attributes:
        url: Where the page is, with the token if there is one.
        token: The token, '' at loopback.

    Raises:
        HearthError: This computer cannot listen there.
    """

    daemon_threads = True

    def __init__(self, address: str, port: int, page: Page) -> None:
        try:
            known = ipaddress.ip_address(address)
        except ValueError:
            known = None
        if known is None or known.is_unspecified:
            raise HearthError(f"--address {address}: name one IP address of this computer")
        self.address_family = socket.AF_INET6 if known.version == 6 else socket.AF_INET
        try:
            super().__init__((address, port), _Handler)
        except (OSError, OverflowError) as error:
            raise HearthError(
                f"cannot serve at {address} port {port}: {error}; choose another port with "
                "--serve PORT, or an address of this computer with --address"
            ) from None
        self.page = page
        self.token = "" if known.is_loopback else secrets.token_urlsafe(32)
        shown = f"[{address}]" if known.version == 6 else address
        names = [shown, "localhost"] if known.is_loopback else [shown]
        self.hosts = {f"{name}:{self.server_port}" for name in names}
        query = f"?token={self.token}" if self.token else ""
        self.url = f"http://{shown}:{self.server_port}/{query}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one browser."""

    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "hearth", ""
    timeout = 20

    def do_GET(self) -> None:
        """Send a page."""
        # Another site whose name leads to this address would else read the page (DNS rebinding).
        if self.headers.get("Host", "") not in self.server.hosts:
            return self._refuse(HTTPStatus.FORBIDDEN, f"open {self.server.url.partition('?')[0]}")
        place = urlsplit(self.path)
        token = self.server.token
        if token and _is(token, *parse_qs(place.query).get("token", [])):
            return self._enter(place.path, token)
        if token and not _is(token, self._cookie()):
            return self._refuse(HTTPStatus.FORBIDDEN, "open the address that hearth printed")
        if place.path == "/live.js":
            return self._send(HTTPStatus.OK, _SCRIPT, "text/javascript")
        is_run = place.path.startswith(PLACE)
        name = unquote(place.path.removeprefix(PLACE)) if is_run else ""
        page = self.server.page(name) if name or place.path == "/" else None
        if page is None:
            return self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")
        return self._send(HTTPStatus.OK, page.encode(), "text/html")

    do_HEAD = do_GET

    def __getattr__(self, name: str) -> Callable[[], None]:
        if not name.startswith("do_"):
            raise AttributeError(name)
        return self._not_allowed

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a token stands in the address."""

    def _not_allowed(self) -> None:
        """Refuse every method that could change something."""
        self.close_connection = True  # what it sends is not read
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "this page is only read", Allow="GET, HEAD")

    def _enter(self, path: str, token: str) -> None:
        """Keep the token in a cookie, and leave it out of the address."""
        # Two slashes at the beginning would lead to another site.
        place = "/" + path.lstrip("/\\")
        cookie = f"{_COOKIE}={token}; HttpOnly; SameSite=Lax; Path=/"
        self._refuse(HTTPStatus.SEE_OTHER, "", **{"Location": place, "Set-Cookie": cookie})

    def _cookie(self) -> str:
        """Return the token that the browser has kept."""
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(_COOKIE)
        except CookieError:
            return ""
        return cookie.value if cookie else ""

    def _refuse(self, status: HTTPStatus, text: str, **headers: str) -> None:
        """Answer without a page."""
        self._send(status, f"{text}\n".encode(), "text/plain", **headers)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, **headers: str) -> None:
        """Send an answer; a page that the browser has already is not sent again."""
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if status == HTTPStatus.OK and self.headers.get("If-None-Match") == tag:
            status, body = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        more = {"ETag": tag} if status in (HTTPStatus.OK, HTTPStatus.NOT_MODIFIED) else {}
        if status != HTTPStatus.NOT_MODIFIED:
            more |= {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
        for name, value in (_HEADERS | more | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _is(token: str, *given: str) -> bool:
    """Return whether the token is among those given, in a time that does not depend on them."""
    return any(secrets.compare_digest(token.encode(), each.encode()) for each in given)
