"""`hearth status --serve`: the live page, read-only, for those who know its token."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hearth.base.errors import ConfigError, HearthError
from hearth_controller.report.live import PLACE, live_page
from hearth_controller.report.page import contents
from hearth_controller.report.read import RunFolder, read, read_under_way
from hearth_controller.runs.observed import UNDER_WAY
from hearth_controller.watch.child import Checkout, describe, play
from hearth_controller.watch.feed import Feed

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


_EVERY = 15.0
"""Seconds between two plays of status.yml; each takes 3 s of a core."""

_FRESH = 5.0
"""Seconds that a drawn report is reused although the run goes on; drawing takes 1 s."""

_OF_A_RUN = ("run.yml", "metrics.jsonl", "ends.json")


class Gathering:
    """The state of a cluster, gathered in the background, and pages of it.

    `runs` is the folder with the folders of runs on this computer.
    """

    def __init__(self, checkout: Checkout, runs: Path) -> None:
        self._checkout, self._runs = checkout, runs
        self._status: Mapping[str, Any] = {}
        self._trouble = ""
        self._feeds: dict[str, Feed] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._drawn: dict[str, tuple[Hashable, float, Mapping[str, Any]]] = {}

    async def gather(self) -> None:
        """Gather until this is cancelled."""
        try:
            while True:
                answer = await play(self._checkout, "status", {})
                self._status = answer.facts or self._status
                self._trouble = "" if answer.facts else describe(answer)
                self._follow()
                await asyncio.sleep(_EVERY)
        finally:
            tasks = [*self._following.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def page(self, name: str = "") -> str | None:
        """Return the page of a run, by default of the newest; None if no such run is known."""
        local = self._local()
        names = [run["name"] for run in self._status.get("runs", [])]
        if name and name not in (*names, *local):
            return None
        chosen = name or next(iter([*names, *local]), "")
        report = self._report(chosen) if chosen else None
        return live_page(self._status, self._trouble, chosen, report, local)

    def _follow(self) -> None:
        """Follow each run that is under way."""
        for name, state in self._states().items():
            following = self._following.get(name)
            if state == "queued" or (following and not following.done()):
                continue
            self._feeds[name] = Feed(self._checkout, name)
            self._following[name] = asyncio.create_task(self._feeds[name].follow())

    def _states(self) -> dict[str, str]:
        """Return the states of the runs under way by name."""
        runs = self._status.get("runs", [])
        return {run["name"]: run["state"] for run in runs if run["state"] in UNDER_WAY}

    def _local(self) -> list[str]:
        """Return the runs that have a folder on this computer, the newest first."""
        folders = [each for each in self._runs.glob("*") if any(_stamps(each))]
        return [each.name for each in sorted(folders, key=lambda each: -max(_stamps(each)))]

    def _report(self, name: str) -> Mapping[str, Any] | None:
        """Return the contents of the report of a known run, None if nothing of it is here."""
        feed, state = self._feeds.get(name), self._states().get(name, "")
        live = feed if state and feed and feed.answer is None else None
        key = (state, live.view.version) if live else ("", *_stamps(self._runs / name))
        before, drawn, report = self._drawn.get(name, (None, 0.0, {}))
        if before == key or (live and time.monotonic() - drawn < _FRESH and report):
            return report
        try:
            known = self._known(name, live, state)
        except ConfigError:
            return None
        self._drawn[name] = key, time.monotonic(), contents(known)
        return self._drawn[name][2]

    def _known(self, name: str, live: Feed | None, state: str) -> RunFolder:
        """Read a run: its story from the feed while it is under way."""
        folder = self._runs / name
        return read_under_way(folder, live.view.story, state) if live else read(folder)


def _stamps(folder: Path) -> list[int]:
    """Return when each of a run's files last changed, 0 for one that is missing."""
    files = [folder / name for name in _OF_A_RUN]
    return [file.stat().st_mtime_ns if file.is_file() else 0 for file in files]


_SECONDS = 60.0
"""Seconds for a page; several that are drawn at once wait for each other."""


async def serve(checkout: Checkout, address: str, port: int, say: Callable[[str], None]) -> None:
    """Serve the live page at an address of this computer until this is cancelled, or SIGTERM.

    Raises `HearthError` if this computer cannot listen there.
    """
    loop = asyncio.get_running_loop()
    gathering = Gathering(checkout, checkout.repository / "runs")

    async def drawn(name: str) -> str | None:
        """Draw in the loop, so that no event comes in meanwhile."""
        return gathering.page(name)

    def page(name: str) -> str | None:
        """Return a page for a thread of the server."""
        return asyncio.run_coroutine_threadsafe(drawn(name), loop).result(_SECONDS)

    server = PageServer(address, port, page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    say(f"{server.url}  (Ctrl-C ends it; training continues)")
    work = asyncio.ensure_future(gathering.gather())
    loop.add_signal_handler(signal.SIGTERM, work.cancel)
    try:
        await work
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
