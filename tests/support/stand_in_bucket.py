"""A stand-in for an S3 store on loopback: as much of it as copies of a run need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

_XML = '<?xml version="1.0"?>'


class StandInBucket(ThreadingHTTPServer):
    """Keeps objects by `bucket/key`, in their order of arrival.

    `refuses` is the ending of a key that it does not take.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.refuses = ""

    @property
    def variables(self) -> dict[str, str]:
        """The environment that makes this the store."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "home",
        }


@contextmanager
def stand_in_bucket() -> Iterator[StandInBucket]:
    """Run a stand-in store while the context lasts."""
    with StandInBucket() as store:
        Thread(target=store.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield store
        finally:
            store.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: StandInBucket
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.refuses and self._key.endswith(self.server.refuses):
            return self._send(403, f"{_XML}<Error><Code>AccessDenied</Code></Error>".encode())
        self.server.objects[self._key] = content
        return self._send(200)

    def do_GET(self) -> None:
        if "list-type" in self.path:
            return self._send(200, self._listing())
        if self._key not in self.server.objects:
            return self._send(404, f"{_XML}<Error><Code>NoSuchKey</Code></Error>".encode())
        return self._send(200, self.server.objects[self._key])

    do_HEAD = do_GET

    def do_POST(self) -> None:
        """Delete several objects of a bucket."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall(r"<Key>(.*?)</Key>", body)
        for key in keys:
            self.server.objects.pop(f"{self._key}/{key}", None)
        gone = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._send(200, f"{_XML}<DeleteResult>{gone}</DeleteResult>".encode())

    @property
    def _key(self) -> str:
        return unquote(self.path.partition("?")[0]).strip("/")

    def _listing(self) -> bytes:
        prefix = re.search(r"prefix=([^&]*)", self.path)
        wanted = f"{self._key}/{unquote(prefix[1]) if prefix else ''}"
        found = "".join(
            f"<Contents><Key>{key.removeprefix(f'{self._key}/')}</Key><Size>{len(content)}</Size>"
            '<LastModified>2026-11-26T00:00:00Z</LastModified><ETag>"x"</ETag></Contents>'
            for key, content in self.server.objects.items()
            if key.startswith(wanted)
        )
        head = f"<Name>{self._key}</Name><IsTruncated>false</IsTruncated>"
        return f"{_XML}<ListBucketResult>{head}{found}</ListBucketResult>".encode()

    def _send(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("ETag", '"x"')
        self.send_header("Last-Modified", "Thu, 26 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
