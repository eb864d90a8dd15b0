"""Bytes that a stranger may send to a listening socket, or answer at the port of a node."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil
from hypothesis import settings
from hypothesis import strategies as st

from hearth.base.text import plain

ENDLESS = 100 << 20
"""Bytes of a line without an end."""

LITTLE = 48 << 20
"""Bytes of memory that nothing of it may take."""

INTEGERS = st.integers(-(1 << 63) + 1, (1 << 63) - 1)
"""Integers that a field of a protocol can have."""

st.register_type_strategy(int, INTEGERS)

quick = settings(max_examples=60, deadline=None, derandomize=True)

_TEXTS = st.sampled_from(["", "\ud800", "\x1b]0;x\x07", "\0", "é" * 999, "9" * 5000]) | st.text()
_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, 1 << 63, -1])
    | st.floats()
    | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=8,
)


def cleaned(value: Any) -> Any:
    """Return a value whose texts are without commands to a terminal."""
    if isinstance(value, dict):
        return {plain(name): cleaned(each) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(map(cleaned, value))
    return plain(value) if isinstance(value, str) else value


def messages(*kinds: type) -> st.SearchStrategy[bytes]:
    """Return lines that look like these dataclasses, with fields of any kind."""

    def line(kind: type) -> st.SearchStrategy[bytes]:
        names = [*kind.__dataclass_fields__, "more"]
        fields = st.fixed_dictionaries({}, optional=dict.fromkeys(names, _VALUES))
        return fields.map(lambda found: _line({"type": kind.__name__, **found}))

    return st.one_of(*map(line, kinds)) if kinds else st.nothing()


def _line(words: dict[str, Any]) -> bytes:
    return json.dumps(words).encode() + b"\n"


def rubbish(*kinds: type) -> st.SearchStrategy[bytes]:
    """Return bytes of a protocol of these messages, of others, or of none."""
    fixed = [
        b"",
        b"\n" * 1000,
        b"[" * 60_000 + b"\n",
        b'{"type":' * 9000 + b"\n",
        b"\xff" * 500,
        b"GET / HTTP/1.1\r\nAuthorization: \xff\xd8\r\n\r\n",
        b"GET /reach/" + b"a" * 70_000,
        b"POST /table HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"GET /table HTTP/9999999999999999.1\r\n\r\n",
        b"GET /piece/model/-1/99999999999999999999 HTTP/1.0\r\n" + b"a: b\r\n" * 200 + b"\r\n",
        struct.pack("!I", 0xFFFFFFFF) * 4,
        struct.pack("!Q", 0xFFFFFFFFFFFFFFFF) * 4,
        b"hearth-2" + bytes(200),
    ]
    json_lines = _VALUES.map(lambda value: json.dumps(value).encode() + b"\n")
    return st.sampled_from(fixed) | st.binary(max_size=300) | json_lines | messages(*kinds)


def send(place: tuple[str, int] | str, content: bytes) -> None:
    """Send this to a listening socket, as far as it takes it, and hang up."""
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    with socket.socket(family) as stranger, suppress(OSError):
        stranger.settimeout(5)
        stranger.connect(place)
        stranger.sendall(content)


def send_endlessly(place: tuple[str, int] | str) -> int:
    """Send a line without an end until the other side hangs up; return the bytes of memory."""
    process, piece = psutil.Process(), b"x" * (1 << 20)
    before = process.memory_info().rss
    most = 0
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    with socket.socket(family) as stranger, suppress(OSError):
        stranger.settimeout(5)
        stranger.connect(place)
        for _ in range(ENDLESS // len(piece)):
            stranger.sendall(piece)
            most = max(most, process.memory_info().rss - before)
    return most


@contextmanager
def answerer(content: bytes, address: str = "127.0.0.1") -> Iterator[tuple[str, int]]:
    """Yield the place of a program that answers every connection with this, and hangs up."""
    listener = socket.create_server((address, 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                with listener.accept()[0] as line, suppress(OSError):
                    line.settimeout(1)
                    line.sendall(content)
                    line.shutdown(socket.SHUT_WR)
                    while line.recv(1 << 16):
                        pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
