"""The lines of a run's record, `metrics.jsonl`, as text.

Standard library only: modules ship this file to nodes without packages, and supervisors use it.
`hearth.record.events` gives the lines their types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

# Ansible ships these files under a package of its own.
from ..base.files import open_regular, tail

METRICS = "metrics.jsonl"

_STEP = b'{"kind": "step"'
"""Beginning of most lines: every line begins with its kind."""

_ABRIDGED = ("team", "disk", "step", "evaluate", "end")
_MOST_TEAMS = 100
"""Number of regroups that an abridged record has; the last ones, if there were more."""

_TAIL = 1 << 16
"""Bytes at the end of a record that have its newest step."""


def text_lines(metrics: Path, skim: bool = False) -> Iterator[str]:
    """Yield the lines of a record; none if it is missing or no file.

    With `skim`, steps that another step follows are left out. Bytes that are no UTF-8 are replaced.
    """
    held = b""
    with suppress(OSError), open_regular(metrics) as file:
        for line in file:
            step = skim and line.startswith(_STEP) and line.endswith(b"\n")  # one that is whole
            if held and not step:
                yield held.decode("utf-8", "replace")
            held = line if step else b""
            if not step:
                yield line.decode("utf-8", "replace")
    if held:
        yield held.decode("utf-8", "replace")


def newest_step(metrics: Path) -> dict[str, Any]:
    """Return the newest step of a record as it was written, {} without any."""
    with suppress(OSError, ValueError, RecursionError):
        *lines, _ = tail(metrics, _TAIL).split("\n")
        newest = next((line for line in reversed(lines) if line.startswith(_STEP.decode())), "{}")
        return json.loads(newest)
    return {}


def abridged(metrics: Path, now: float | None = None) -> dict[str, Any]:
    """Return the lines of a record that tell how its run is doing; {} without any.

    They are the last launch, its newest regroups, the last step, the last evaluation of each time
    (`when`) and the end. Also the time of the first record (`began`), the number of `regroups`
    of all launches and the `spans` of the launches, in seconds since then: up to `now`, in seconds
    since 1970, for a run that is under way.
    """
    kept: dict[Any, str] = {}
    began, first, spans, regroups = "", 0.0, [], 0
    for line in text_lines(metrics, skim=True):
        record = _object(line)
        kind, time = record.get("kind"), record.get("time")
        if (at := seconds_of(time)) is not None:
            began, first = (began, first) if spans else (time, at)
            spans += [[at - first, at - first]] if kind == "start" or not spans else []
            spans[-1][1] = at - first
        if kind == "start":  # it comes first: a step without its launch has no nodes
            kept = {key: each for key, each in kept.items() if key[0] in ("step", "evaluate")}
            kept = {(kind, None): line, **kept}
        elif kind in _ABRIDGED:
            regroups += kind == "team"
            key = (kind, {"team": regroups, "evaluate": str(record.get("when"))}.get(kind))
            kept.pop(key, None)
            kept.pop(("team", regroups - _MOST_TEAMS), None)
            kept[key] = line
    if now is not None and spans and ("end", None) not in kept:
        spans[-1][1] = max(now - first, spans[-1][0])
    found = {"began": began, "spans": spans} if spans else {}
    return found | ({"lines": [*kept.values()], "regroups": regroups} if kept else {})


def _object(line: str) -> dict[str, Any]:
    """Return the JSON object in a line, {} if there is none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def seconds_of(text: Any) -> float | None:
    """Return an ISO 8601 time as seconds since 1970, or None if it is invalid or has no zone."""
    try:
        # Only Python 3.11 and newer parse a final `Z`; milliseconds parse on older ones too.
        read = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return read.timestamp() if read.tzinfo else None
    except (ValueError, OverflowError):
        return None
