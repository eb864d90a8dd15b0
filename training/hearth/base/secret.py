"""Comparison of secrets with text that a stranger has sent."""

from __future__ import annotations

import hmac


def same(given: str, expected: str) -> bool:
    """Compare a secret in constant time, whatever characters the `given` text has."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
