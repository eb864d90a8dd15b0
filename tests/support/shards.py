"""Token shards in plain bytes, as llm.c's documentation describes them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

GPT2, LLAMA3 = (20240520, 1, "H"), (20240801, 7, "I")
"""Magic number, version and type of the tokens (as in `struct`)."""


def write_shard(
    path: Path,
    tokens: Sequence[int],
    kind: tuple[int, int, str] = GPT2,
    count: int | None = None,
) -> Path:
    """Write a `.bin` shard that says it has `count` tokens, by default as many as it has."""
    magic, version, letter = kind
    count = len(tokens) if count is None else count
    header = struct.pack("<256i", magic, version, count, *[0] * 253)
    path.write_bytes(header + struct.pack(f"<{len(tokens)}{letter}", *tokens))
    return path
