"""JSON values between ranks: a malformed one breaks the group, and never ends the rank."""

from __future__ import annotations

import json
from typing import Any

from hearth.base.errors import HearthError
from hearth.ranks.alarm import GroupBroken

LONGEST_VALUE = 1 << 26
"""Bytes of a value that every rank gives. The largest are checksums of all weights, under 1 MB."""

LONGEST_BYTES = 1 << 30
"""Bytes that one rank gives to all. The largest are parts of checkpoints and records of metrics."""


def to_bytes(value: Any) -> bytes:
    """Return a value as JSON. Lone surrogates, which have no UTF-8, become question marks."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def from_bytes(content: bytes, sender: str) -> Any:
    """Return the value in JSON that a rank has sent. Raises `GroupBroken` if it is malformed."""
    try:
        value = json.loads(content.decode())
        json.dumps(value, ensure_ascii=False).encode()  # an escaped lone surrogate fails here
    except (ValueError, RecursionError) as error:
        raise GroupBroken(f"{sender} sent no valid JSON: {type(error).__name__}") from error
    return value


def check_own_length(length: int, most: int) -> None:
    """Raise `HearthError` if a rank's own bytes are more than the others accept."""
    if length > most:
        raise HearthError(f"a rank would send {length:,} bytes at once; at most {most:,} can go")


def check_length(length: int, most: int, sender: str) -> None:
    """Raise `GroupBroken` unless another rank announces from 0 to `most` bytes."""
    if not 0 <= length <= most:
        raise GroupBroken(f"{sender} announces {length:,} bytes; at most {most:,} are accepted")
