"""Values of settings as text for a person."""

from __future__ import annotations

from typing import Any

from hearth.base.text import on_off


def shown(value: Any) -> str:
    """Format a setting's value as a person would type it."""
    if value is None or value in ((), {}):
        return "-"
    if isinstance(value, bool):
        return on_off(value)
    if isinstance(value, dict):
        each = {name: to if isinstance(to, str) else f"{to:g}" for name, to in value.items()}
        return ",".join(f"{name}={to}" for name, to in each.items())
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
