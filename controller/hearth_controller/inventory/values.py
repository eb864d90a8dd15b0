"""Whether the value of an option or a word is of the declared type. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from hearth.base.text import WANTED, on_off, switch


def misfit(value: Any, option: Mapping[str, Any], typed: bool = False) -> str:
    """Return the reason why a value does not fit an option, or ''.

    `typed` is true for a value after `-e`, where every value is text.
    """
    kind, choices = option.get("type", "str"), option.get("choices", ())
    if value is None:
        return "has no value; give one, or remove the line for the default"
    given = value if kind == "list" and isinstance(value, list) else [value]
    reason = "" if choices and isinstance(value, bool) else _wrong_type(value, kind, typed)
    if not reason and choices:
        wrong = next((each for each in given if one_of(each, choices) not in choices), None)
        reason = "" if wrong is None else _refusal(wrong, f"{alternatives(choices)} is wanted")
    if reason and option.get("no_log"):
        return f"its value, which is not shown, is not of the type {kind}"
    return reason


def one_of(value: Any, choices: Sequence[str]) -> Any:
    """Return a value as it is among the choices, where `on` and `off` have several forms."""
    if {"on", "off"} <= set(choices):
        with suppress(ValueError):
            return on_off(switch(value))
    return value


def alternatives(choices: Sequence[str]) -> str:
    """Format choices for a sentence: `a, b or c`."""
    return " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))


def _wrong_type(value: Any, kind: str, typed: bool) -> str:
    """Return the reason why a value is not of a type of options, or ''."""
    text = value.strip().lower() if isinstance(value, str) else ""
    if kind in ("str", "path"):
        if isinstance(value, bool):
            return f"{on_off(value)} without quotes is no text; put quotes around it"
        if isinstance(value, list | dict):
            shape = "list" if isinstance(value, list) else "mapping"
            return f"a single text is wanted, not a {shape}"
        return ""
    if kind == "bool":
        return _no_switch(value, typed)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    fits, wanted = {
        "int": (
            (number and isinstance(value, int)) or text.removeprefix("-").isdecimal(),
            "a whole number",
        ),
        "float": (number or _is_number(text), "a number"),
        "list": (isinstance(value, list), "a list"),
        "dict": (isinstance(value, dict), "a mapping"),
    }.get(kind, (True, ""))
    return "" if fits else _refusal(value, f"{wanted} is wanted")


def _no_switch(value: Any, typed: bool) -> str:
    """Return the reason why a value is no switch, or ''."""
    try:
        state = switch(value)
    except ValueError:
        return _refusal(value, WANTED)
    if isinstance(value, str) and not typed:
        return f'"{value}" in quotes is text; write {on_off(state)} without them'
    return ""


def _refusal(value: Any, wanted: str) -> str:
    return f"{value!r} cannot be used; {wanted}"


def _is_number(text: str) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False
