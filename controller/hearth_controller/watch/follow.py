"""Follow a run on one node until it ends there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from hearth.base.text import duration
from hearth.supervise.cause import ENDS
from hearth_controller.base.paths import for_shell
from hearth_controller.base.screen import Screen
from hearth_controller.runs.observed import GONE
from hearth_controller.watch.probe import Probe
from hearth_controller.watch.progress import Progress, state_text

_FACTS = ("rank", "nodes", "generation", "launches", "script", "since")
_TO_THE_SECOND = len("2026-11-20T07:46:11")
_SECONDS_TILL_MENTIONED = 15.0
_PROBES, _PROBES_OF_A_UNIT = 2, 30


class Follower:
    """A run on one node. The follower of rank 0's node, which has the metrics, draws the progress.

    Attributes:
        facts: of the supervisor's record, for the result.
        draws: whether the node is rank 0's.
    """

    def __init__(
        self, node: str, run: str, workspace: str, ask: Callable[[str], str], screen: Screen
    ) -> None:
        self._node, self._run, self._screen = node, run, screen
        self._probe, self._progress = Probe(workspace, run, ask), Progress()
        self._metrics = for_shell(f"{workspace}/results/{run}/metrics.jsonl")
        self._file, self._offset = "", 0
        self._gone, self._away = 0, False
        self.facts: dict[str, Any] = {}
        self.draws = False

    def inspect(self) -> dict[str, Any] | None:
        """Probe the node and show the progress; return the outcome once the run has ended here."""
        draws = self.draws  # the first probe does not know yet whose the metrics are
        commands = (
            f"{{ stat -c %i {self._metrics} || echo none; }} 2>/dev/null",
            f"tail -c +{self._offset + 1} {self._metrics} 2>/dev/null || true",
        )
        metrics = self._probe.inspect(*(commands if draws else ()))
        record = self._probe.record
        if record and draws:
            self._read_metrics(metrics, since=record["since"])
        if self._away:
            self._screen.line(f"{self._node} answers again")
            self._away = False
        if record is None:
            why = f"no run '{self._run}' was started on this node; is its name right?"
            return {"state": "unknown", "message": why}
        self.facts = {name: record.get(name) for name in _FACTS}
        self.draws = record.get("rank") == 0
        if record["state"] in ENDS:
            return {"state": record["state"], "cause": record.get("cause")}
        # A supervisor that has just ended may have been probed between its last two records.
        # One that is a unit comes back after its machine, a little later than the login.
        self._gone = 0 if self._probe.alive else self._gone + 1
        if self._gone > (_PROBES_OF_A_UNIT if record.get("unit") else _PROBES):
            return {"state": "lost", "gone": True, "message": GONE}
        if draws:
            self._screen.progress(state_text(record, self._progress), self._progress.tenth)
        return None

    def no_answer(self, why: str, patience: float) -> dict[str, Any] | None:
        """Return the outcome once the node was silent for `patience` seconds; mention it before."""
        silent = time.monotonic() - self._probe.answered
        if silent > patience:
            return {"state": "lost", "message": f"no answer for {duration(silent)}: {why.strip()}"}
        if silent > _SECONDS_TILL_MENTIONED and not self._away:
            self._screen.line(f"{self._node} does not answer; still trying")
            self._away = True
        return None

    def _read_metrics(self, text: str, since: str) -> None:
        """Take in whole lines, written since the run began here; half a line waits.

        A resumed run puts a new file in place of the old one, and begins with what it kept.
        """
        file, _, metrics = text.partition("\n")
        if file != self._file:
            anew, self._file, self._offset = self._offset > 0, file, 0
            if anew:
                return
        whole = metrics[: metrics.rfind("\n") + 1]
        self._offset += len(whole.encode())
        for line in map(json.loads, whole.splitlines()):
            if line["time"][:_TO_THE_SECOND] >= since[:_TO_THE_SECOND]:
                self._progress.take(line)
        for news in self._progress.news:
            self._screen.line(news)
        self._progress.news.clear()
