"""A stand-in for a package index on loopback, with packages that a test makes up.

It behaves as PyPI does where that matters here: files can be cached and asked for in parts. On
demand it breaks off in the middle of a file, or stops answering there.
"""

from __future__ import annotations

import hashlib
import io
import time
import urllib.parse
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


def make_wheel(
    name: str, version: str, tag: str = "py3-none-any", size: int = 0, requires: str = ""
) -> dict[str, bytes]:
    """Return file name and content of a wheel with one module; `size` bytes of data come along."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": f'__version__ = "{version}"\n',
        f"{module}/data.bin": "x" * size,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(zipfile.ZipInfo(path), text)  # no time of day: the same bytes each time
    return {f"{module}-{version}-{tag}.whl": packed.getvalue()}


def lock_line(name: str, version: str, *files: bytes) -> str:
    """Return the entry of a lock file for a package with these files."""
    hashes = " ".join(f"--hash=sha256:{hashlib.sha256(each).hexdigest()}" for each in files)
    return f"{name}=={version} {hashes}\n"


class StandInIndex(ThreadingHTTPServer):
    """Serves files below /files and their list below /simple.

    `asked` has file name and beginning of the answer of each request of a file. The next answer of
    a file in `breaks` ends in the middle; those of a file in `stalls` stop there and say no more.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, int]] = []
        self.breaks: set[str] = set()
        self.stalls: set[str] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def variables(self, cache: Path) -> dict[str, str]:
        """Return environment variables that restrict pip to this index and a cache of its own."""
        return {
            "PIP_INDEX_URL": f"{self.url}/simple",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_FIND_LINKS": "",
            "PIP_EXTRA_INDEX_URL": "",
            # pip caches nothing that came by plain http, but from hosts that it trusts.
            "PIP_TRUSTED_HOST": "127.0.0.1",
            "PIP_CACHE_DIR": str(cache),
        }


@contextmanager
def stand_in_index() -> Iterator[StandInIndex]:
    """Run a stand-in index while the context lasts."""
    with StandInIndex() as index:
        Thread(target=index.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield index
        finally:
            index.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: StandInIndex

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        kind, _, name = urllib.parse.unquote(self.path).strip("/").partition("/")
        if kind == "simple":
            self._list(name.strip("/"))
        elif kind == "files" and name in self.server.files:
            self._file(name)
        else:
            self.send_error(404)

    def _list(self, package: str) -> None:
        module = package.replace("-", "_")
        names = [name for name in self.server.files if name.split("-")[0].lower() == module]
        if not names:
            return self.send_error(404)
        page = "".join(f'<a href="/files/{name}">{name}</a>' for name in names).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def _file(self, name: str) -> None:
        content = self.server.files[name]
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.server.asked.append((name, begin))
        if begin >= len(content):
            return self.send_error(416)
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Cache-Control", "max-age=365000000, immutable, public")
        self.end_headers()
        half = (begin + len(content)) // 2
        self.wfile.write(content[begin:half])
        self.wfile.flush()
        if name in self.server.breaks:
            self.server.breaks.discard(name)
            self.close_connection = True
            return
        while name in self.server.stalls:
            time.sleep(0.05)
        self.wfile.write(content[half:])
