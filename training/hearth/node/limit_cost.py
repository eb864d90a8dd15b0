"""The speed that a limit on a GPU's power costs, from this node's cached measurements.

A rank is measured again under another limit. So if both measurements are in the cache, they differ
in the limit alone. Standard library only: modules of Ansible ship this file to the nodes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WATTS = "watts"
"""Key of a case that was measured under another limit than the card's default one."""


@dataclass(frozen=True)
class LimitCost:
    """The speed of one case under a limit, beside that under the card's default limit.

    Attributes:
        case: the case under the limit, see `hearth.node.kept`.
        slower: the part of the speed that is lost; below 0 if it is faster.
        measured: the day of the later measurement, as in 2026-11-20 (UTC).
    """

    case: Mapping[str, Any]
    slower: float
    measured: str

    def is_of(self, uuid: str, watts: float) -> bool:
        """Return whether it is that of a GPU, by its UUID with or without `GPU-`, and a limit."""
        identity = str(self.case.get("processor", "")).rpartition(" ")[2]
        return identity == uuid.removeprefix("GPU-") and abs(self.case[WATTS] - watts) < 0.5


def costs(folder: Path) -> list[LimitCost]:
    """Return the costs that the measurements in `folder` show, the newest last."""
    by_case: dict[str, tuple[float, float]] = {}
    limited = []
    for path in folder.glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            found = json.loads(path.read_text(encoding="utf-8"))
            speed, at = _rows_per_second(found), path.stat().st_mtime
            by_case[_key(found["case"])] = speed, at
            if WATTS in found["case"]:
                limited.append(found["case"])
    pairs = []
    for case in limited:
        speed, at = by_case[_key(case)]
        unlimited = {name: value for name, value in case.items() if name != WATTS}
        if other := by_case.get(_key(unlimited)):
            pairs.append((max(at, other[1]), case, 1 - speed / other[0]))
    return [
        LimitCost(case, slower, time.strftime("%Y-%m-%d", time.gmtime(at)))
        for at, case, slower in sorted(pairs, key=lambda pair: pair[0])
    ]


def _key(case: Mapping[str, Any]) -> str:
    return json.dumps(case, sort_keys=True)


def _rows_per_second(measured: Mapping[str, Any]) -> float:
    """Return the speed at the fastest measured size."""
    pairs = zip(measured["sizes"], measured["seconds"], strict=True)
    return max(size / seconds for size, seconds in pairs if seconds > 0)


def describe_limit(limit: float, default: float, slower: float | None, measured: str | None) -> str:
    """Return a limit in watts beside the default one, and its cost if that was measured."""
    if abs(limit - default) < 0.5:
        return f"{limit:.0f} W"
    words = f"{limit:.0f} of {default:.0f} W"
    if slower is None:
        return words
    if abs(slower) < 0.005:
        change = "as fast as"
    else:
        change = f"{abs(slower):.0%} {'slower' if slower > 0 else 'faster'} than"
    return f"{words}, {change} at {default:.0f} W (measured {measured})"
