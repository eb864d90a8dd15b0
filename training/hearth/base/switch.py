"""Switches: `on` and `off`, and the other forms that YAML and people have for them."""

from __future__ import annotations

_FORMS = dict.fromkeys(("on", "true", "yes", "1"), True) | dict.fromkeys(
    ("off", "false", "no", "0"), False
)

WANTED = "on or off is wanted"


def switch(value: object) -> bool:
    """Return the state that a value of any origin stands for. Raises `ValueError` if for none."""
    if isinstance(value, bool):
        return value
    try:
        return _FORMS[str(value).strip().lower()]
    except KeyError:
        raise ValueError(WANTED) from None


def on_off(state: bool) -> str:
    """Format a switch as people are taught to type it."""
    return "on" if state else "off"
