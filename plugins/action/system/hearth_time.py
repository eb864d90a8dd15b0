"""Action plugin: the module of the same name, and how far the node's clock is from this one."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


def skew(before: float, now: float, after: float) -> float:
    """Return by how many seconds a clock is surely ahead, negative if behind.

    `now` was read on the node at some moment between `before` and `after` on this computer, so
    what lies within the two is no skew that can be told from the time the question took.
    """
    return max(now - after, 0.0) + min(now - before, 0.0)


def sentence(seconds: float) -> str:
    """Return what is said of a skew, nothing if it is a second or less."""
    if abs(seconds) <= 1:
        return ""
    side = "ahead of" if seconds > 0 else "behind"
    return f"its clock is {abs(seconds):.1f} s {side} this computer's"


class ActionModule(ActionBase):
    """Reads the clock here before and after the node's."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return what the module says, with a note on the clock."""
        result = super().run(tmp, task_vars)
        before = time.time()
        result |= self._execute_module("hearth_time", self._task.args, task_vars=task_vars)
        if "now" in result:
            result["skew"] = skew(before, result["now"], time.time())
            if note := sentence(result["skew"]):
                result["note"] = note
        return result
