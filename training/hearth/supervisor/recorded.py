"""A supervisor's record as it is read: the file, or the node that sends it, can hold anything.

Judged without pydantic: the supervisor reads records, and loads only psutil beside what Python
brings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from hearth.base.files import read_object
from hearth.supervisor.cause import Kind, State
from hearth.supervisor.open_step import is_open_step

Check = Callable[[Any], bool]


def misfit(record: Any) -> str:
    """Return which field of a record is missing or has a value that it cannot have, or ''."""
    return _misfit(record, _RECORD, ("state",))


def record_in(path: Path) -> dict[str, Any]:
    """Return the record in a file; {} if there is none, or a field has a value that it cannot."""
    record = read_object(path) or {}
    return {} if misfit({"state": "waiting", **record}) else record


def _misfit(content: Any, checks: Mapping[str, Check], required: tuple[str, ...]) -> str:
    if not isinstance(content, Mapping):
        return "it is no object"
    for name in required:
        if name not in content:
            return f"{name} is missing"
    for name, fits in checks.items():
        if name in content and not fits(content[name]):
            return f"{name} cannot be {str(content[name])[:80]!r}"
    return ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _one_of(known: Any) -> Check:
    names = get_args(known)
    return lambda value: isinstance(value, str) and value in names


def _number(low: int, high: int) -> Check:
    return lambda value: type(value) is int and low <= value <= high


def _or_none(fits: Check) -> Check:
    return lambda value: value is None or fits(value)


def _is_cause(value: Any) -> bool:
    return not _misfit(value, _CAUSE, tuple(_CAUSE))


def _are_launches(value: Any) -> bool:
    return isinstance(value, list) and not any(
        _misfit(one, _LAUNCH, tuple(_LAUNCH)) for one in value
    )


_RANK = _or_none(_number(0, 10**6))
_GENERATION = _number(-1, 10**6)
_INTEGER = _or_none(_number(-(2**31), 2**31 - 1))
_CAUSE: dict[str, Check] = {
    "node": _is_text,
    "rank": _RANK,
    "kind": _one_of(Kind),
    "message": _is_text,
}
_LAUNCH: dict[str, Check] = {
    "generation": _GENERATION,
    "ended": _is_text,
    "cause": _or_none(_is_cause),
}
_RECORD: dict[str, Check] = {
    "state": _one_of(State),
    "run": _is_text,
    "node": _is_text,
    "rank": _RANK,
    "generation": _or_none(_GENERATION),
    "since": _is_text,
    "missing": _are_texts,
    "cause": _or_none(_is_cause),
    "nodes": _are_texts,
    "script": _is_text,
    "job": _or_none(_is_text),
    "away": _is_text,
    "unreached": _are_texts,
    "launches": _are_launches,
    "began": _is_text,
    "heartbeat": _is_text,
    "pid": _INTEGER,
    "command": _are_texts,
    "exit_code": _INTEGER,
    "open_step": is_open_step,
}
"""The fields of a `RunRecord`; records of earlier versions lack some."""
