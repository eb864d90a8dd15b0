"""Values of settings as text for a person."""

from __future__ import annotations

from typing import Any


def shown(value: Any) -> str:
    """Format a setting's value as a person would type it."""
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{name}={share:g}" for name, share in value.items())
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
