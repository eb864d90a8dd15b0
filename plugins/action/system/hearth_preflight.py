"""Action plugin: check a machine and its clock before anything is changed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from hearth_controller.base.clock import difference, skew


def summary(facts: Mapping[str, Any], address: str, peers: Iterable[str]) -> str:
    """Return one line about a machine, with the peers that it does not reach."""
    silent = [name for name in peers if name not in facts["peers"]]
    words = [
        facts["os"],
        f"Python {facts['python']}",
        f"{facts['free_gb']} GB free",
        "an NVIDIA GPU" if facts["nvidia"] else "no NVIDIA GPU",
        *(["no C compiler yet"] if facts["nvidia"] and not facts["compiler"] else []),
        f"{'has' if facts['has_address'] else 'does not have'} {address}",
        f"{'reaches' if facts['index'] else 'does not reach'} the package index",
        *([f"gets no answer from {' and '.join(silent)}"] if silent else []),
    ]
    return ", ".join(words)


class ActionModule(ActionBase):
    """Runs on the controller, around the module of the same name."""

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
        note = summary(facts, given["address"], given.get("peers", ()))
        if off := difference(facts["skew"]):
            note += f"; its clock is {off}"
        return result | {"note": note}
