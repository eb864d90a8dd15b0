"""Action plugin: check a machine and its clock before anything is changed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from hearth.base.text import duration

# Clock skew in seconds above which a remark is made.
_SKEW = 5


def skew(before: float, there: float, after: float) -> float:
    """Return a clock's lead in seconds, if it showed `there` between two readings of ours."""
    return there - before if there < before else max(0.0, there - after)


def about_clock(seconds: float) -> str:
    """Return the remark about a clock, or ''."""
    if abs(seconds) <= _SKEW:
        return ""
    side = "ahead of" if seconds > 0 else "behind"
    return f"its clock is {duration(abs(seconds))} {side} the controller's"


def summary(facts: Mapping[str, Any], address: str, peers: Iterable[str]) -> str:
    """Return one line about a machine, with the peers that it does not reach."""
    silent = [name for name in peers if name not in facts["peers"]]
    words = [
        facts["os"],
        f"Python {facts['python']}",
        f"{facts['free_gb']} GB free",
        "an NVIDIA GPU" if facts["nvidia"] else "no NVIDIA GPU",
        f"{'has' if facts['has_address'] else 'does not have'} {address}",
        f"{'reaches' if facts['index'] else 'does not reach'} the package index",
        *([f"gets no answer from {' and '.join(silent)}"] if silent else []),
    ]
    return ", ".join(words)


class ActionModule(ActionBase):
    """Runs on the controller, around the module of the same name."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, with a line about the machine as `note`."""
        super().run(tmp, task_vars)
        before = time.time()
        result = self._execute_module(task_vars=task_vars)
        if result.get("failed") or result.get("unreachable"):
            return result
        facts = result["facts"]
        facts["skew"] = round(skew(before, facts.pop("time"), time.time()), 1)
        given = self._task.args
        line = summary(facts, given["address"], given.get("peers", ()))
        remarks = [line, about_clock(facts["skew"])]
        return result | {"note": "; ".join(filter(None, remarks))}
