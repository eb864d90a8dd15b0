"""Action plugin: run the module of the same name, and measure the node's clock skew."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


def skew(before: float, now: float, after: float) -> float:
    """Return the least possible lead of the node's clock in seconds, negative if behind.

    `now` was read on the node at some moment between `before` and `after` on this computer, so a
    value within the two cannot be told apart from the duration of the request.
    """
    return max(now - after, 0.0) + min(now - before, 0.0)


def sentence(seconds: float) -> str:
    """Return the sentence about a skew, or '' if it is at most one second."""
    if abs(seconds) <= 1:
        return ""
    side = "ahead of" if seconds > 0 else "behind"
    return f"its clock is {abs(seconds):.1f} s {side} this computer's"


class ActionModule(ActionBase):
    """Reads the clock here before and after the node's."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict:
        """Return the module's result, with a note on the clock."""
        result = super().run(tmp, task_vars)
        before = time.time()
        result |= self._execute_module("hearth_time", self._task.args, task_vars=task_vars)
        if "now" in result:
            result["skew"] = skew(before, result["now"], time.time())
            if note := sentence(result["skew"]):
                result["note"] = note
        return result
