"""Probes of a run's supervisor on one node, each of them one cheap shell command."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from hearth_controller.base.paths import for_shell

MARK = "--hearth--"


class Probe:
    """The `record` of a supervisor, None without one; whether it is `alive`; when it `answered`.

    `ask` runs a shell command on the node and returns its output. It raises if there is no answer.
    """

    def __init__(self, workspace: str, run: str, ask: Callable[[str], str]) -> None:
        self._file = for_shell(f"{workspace}/results/{run}/supervisor.json")
        self._ask = ask
        self.record: Mapping[str, Any] | None = None
        self.alive, self.answered = True, time.monotonic()

    def inspect(self, *more: str) -> str:
        """Update all three; return the output of `more` commands, run after that.

        A process that the last record did not name counts as alive.
        """
        pid = self.record["pid"] if self.record else 0
        state = f"if kill -0 {pid} 2>/dev/null; then echo alive; else echo gone; fi"
        read = f"cat {self._file} 2>/dev/null; echo {MARK}"
        head, _, rest = self._ask("; ".join([state, read, *more])).partition(f"{MARK}\n")
        state, _, text = head.partition("\n")
        self.alive = pid == 0 or state == "alive"
        self.record = json.loads(text) if text else None
        self.answered = time.monotonic()
        return rest
