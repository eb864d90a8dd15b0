"""Protocols of one JSON object a line: dataclasses to lines and back, with their types checked.

Nothing that arrives is executed or unpickled: a line becomes one of the protocol's dataclasses,
each field of its declared type, or a `ProtocolError`.
"""

from __future__ import annotations

import dataclasses
import functools
import hmac
import json
import re
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hearth.base.text import plain

_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


_LARGEST = (1 << 63) - 1


class ProtocolError(Exception):
    """The other side sent something other than a message of this protocol."""


class JsonLines:
    """A protocol of dataclasses whose fields are JSON values, tuples or dataclasses of these.

    Args:
        messages: the dataclasses, as a union `A | B`.
        what: a message of this protocol, in words for errors: "a supervisor's message".
    """

    def __init__(self, messages: types.UnionType, what: str) -> None:
        self._types = {kind.__name__: kind for kind in get_args(messages)}
        self._what = what

    def encode(self, message: Any) -> bytes:
        """Return the line for a message.

        Half characters, as file names may have them, become question marks.
        """
        words = {"type": type(message).__name__, **dataclasses.asdict(message)}
        line = json.dumps(words, separators=(",", ":"), ensure_ascii=False)
        return line.encode(errors="replace") + b"\n"

    def decode(self, line: bytes) -> Any:
        """Parse the message in a line. Its texts can command no terminal.

        Raises `ProtocolError` if the line is not a valid message.
        """
        try:
            words = json.loads(line)
            if _HALF_CHARACTER.search(line):  # which no file, log or proof could take
                json.dumps(words, ensure_ascii=False).encode()
            words = _plain(words)
            return read_as(self._types[words.pop("type")], words)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ProtocolError(f"not {self._what}: {line[:80]!r}") from error


def _plain(value: Any) -> Any:
    """Return a JSON value of any sender with texts that may be shown and logged."""
    match value:
        case str():
            return plain(value)
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {plain(name): _plain(each) for name, each in value.items()}
    return value


def read_as(kind: Any, value: Any) -> Any:
    """Return a JSON value as an object of a type.

    Raises `TypeError`, `KeyError` or `AttributeError` if it is none.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: read_as(hints[name], each) for name, each in value.items()})
    if origin in (Union, types.UnionType):
        return _read_any(parts, value)
    if origin in (tuple, list):
        if type(value) is not list:
            raise TypeError(f"not a list: {value!r}")
        if origin is tuple and parts[-1] is not ...:
            if len(parts) != len(value):
                raise TypeError(f"not {len(parts)} values: {value!r}")
            return tuple(map(read_as, parts, value))
        return origin(read_as(parts[0], each) for each in value)
    if kind in (int, float) and type(value) is int and abs(value) > _LARGEST:
        raise TypeError("an integer of more than 64 bits")
    if origin is dict and type(value) is dict:
        return {name: read_as(parts[1], each) for name, each in value.items()}
    if kind is float and type(value) is int:
        return float(value)
    fits = value in parts if origin is Literal else type(value) is (origin or kind)
    if kind is not Any and not fits:
        raise TypeError(f"not {kind}: {value!r}")
    return value


def _read_any(kinds: tuple[Any, ...], value: Any) -> Any:
    """Return a JSON value as an object of the first of these types that it fits."""
    for kind in kinds:
        try:
            return read_as(kind, value)
        except (TypeError, KeyError, AttributeError):
            continue
    raise TypeError(f"none of {kinds}: {value!r}")


@functools.cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind)


def same(given: str, expected: str) -> bool:
    """Compare a secret in constant time; the `given` text may have any characters."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
