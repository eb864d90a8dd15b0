"""Check single values of a record: text, text that holds JSON, and switches."""

from __future__ import annotations

import json
import reprlib
from typing import Any

from hearth.data.findings import Problem

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_KINDS = {list: "a list", dict: "an object", bool: "true or false", type(None): "null"}


def checked_text(value: Any, what: str) -> str:
    """Return `value` if it is text. Raises `Problem` that names it as `what`."""
    if not isinstance(value, str):
        raise Problem(f"{what} is {kind_of(value)}, not text; write it in quotes or leave it out")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise Problem(
            f"{what} has half a surrogate pair at character {error.start + 1}, which is not text; "
            "remove it"
        ) from None
    return value


def kind_of(value: Any) -> str:
    """Return the name of a value's type in messages, such as `a list`."""
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def is_blank(value: Any) -> bool:
    """Return whether `value` holds nothing: null, white space, or an empty list or object."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, (list, tuple, dict)) and not value)


def parsed(value: Any, what: str) -> Any:
    """Return `value`, or the JSON that it holds as text, as cells of csv do.

    Raises `Problem` that names it as `what` if that text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise Problem(f"{what}: this text is not JSON, correct it: {shown(value)}") from None


def checked_json(value: Any, what: str) -> Any:
    """Return `value` if it can be written as JSON. Raises `Problem` that names it as `what`."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        raise Problem(
            f"{what} has a value that JSON cannot hold (a date, bytes, NaN or half a surrogate "
            "pair); write it as text"
        ) from None
    return value


def as_switch(value: Any) -> bool | None:
    """Return the switch that `value` is, or None for any other value.

    Switches are true and false, 1 and 0, and these words in a cell of csv.
    """
    if isinstance(value, str):
        return {"true": True, "1": True, "false": False, "0": False}.get(value.strip().lower())
    return bool(value) if isinstance(value, (int, float)) and value in (0, 1) else None


def shown(value: Any) -> str:
    """Return a value for a message: at most 60 characters of it, all of which can be printed."""
    return _SHORT.repr(value)


def printable(name: Any) -> str:
    """Return the name of a column for a message; half a surrogate pair cannot be printed."""
    return str(name).encode("utf-8", "backslashreplace").decode("utf-8")
