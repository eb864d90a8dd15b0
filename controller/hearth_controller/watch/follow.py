"""Follow a run on one node until it ends there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from hearth.base.slurm import newest_job
from hearth.base.text import duration
from hearth.supervise.cause import ENDS, generation_of
from hearth.supervise.recorded import misfit
from hearth_controller.base.screen import Screen
from hearth_controller.runs.job_state import settled
from hearth_controller.runs.observed import GONE
from hearth_controller.runs.story import Story, parse
from hearth_controller.watch.board import Board
from hearth_controller.watch.node_stream import NodeStream
from hearth_controller.watch.progress import split_news, state_text, tenths

_FACTS = ("rank", "nodes", "generation", "launches", "script", "job", "since")
_TO_THE_SECOND = len("2026-11-20T07:46:11")
_SECONDS_TILL_MENTIONED = 15.0
# A supervisor that has just ended may be observed between its last two records. One that is a unit
# comes back after its machine, a little later than the login.
_GONE, _GONE_OF_A_UNIT = 2.0, 30.0


class Follower:
    """A run on one node. Of the followers of its nodes one draws the progress (`board`).

    `patience` is how many seconds all of the nodes may be silent.

    Attributes:
        facts: of the supervisor's record, and how far the node's metrics reach, for the result.
    """

    def __init__(
        self, node: str, run: str, stream: NodeStream, screen: Screen, board: Board, patience: float
    ) -> None:
        self._node, self._run, self._patience = node, run, patience
        self._stream, self._screen, self._board = stream, screen, board
        self._record: Mapping[str, Any] | None = None
        self._in_queue: Mapping[str, Any] | None = None
        self._reached: Mapping[str, Any] = {}
        self._story, self._earlier, self._half = Story(), Story(), ""
        self._gone_since: float | None = None
        self._away = False
        self.facts: dict[str, Any] = {}

    def inspect(self) -> dict[str, Any] | None:
        """Show the node's next changes; return the outcome once the run has ended here."""
        changes = self._stream.read()
        if changes and self._away:
            self._screen.line(f"{self._node} answers again")
            self._away = False
        outcome = None
        for change in changes:
            if "record" in change:
                outcome = outcome or self._process_state(change)
            self._reached = change.get("reached", self._reached)
        draws = self._draws()
        for change in changes if self._record else ():
            if metrics := change.get("metrics"):
                self._process_metrics(metrics, draws)
            self.facts["reached"] = self._reached
        if draws:
            for team in self._board.not_yet_told(self._story.teams):
                self._screen.line(team.text)
        # The last steps of a run, all of a short one, come together with its end.
        record = self._in_queue or self._record
        if record and changes and draws and (not outcome or self._story.window):
            self._screen.progress(state_text(record, self._story), tenths(self._story))
        outcome = outcome or self._lost()
        if outcome:
            self._board.leave()
            if draws:
                self._screen.end()
        return outcome

    def _draws(self) -> bool:
        """Return whether this follower draws the run now; the others hear of its node."""
        if self._record:
            group, rank = generation_of(self._record), self._record.get("rank") or 0
            self._board.note(group, rank, self._stream.answered)
        return self._board.draws()

    def _process_state(self, change: Mapping[str, Any]) -> dict[str, Any] | None:
        """Process a supervisor's record; return the outcome if it is one of an end, or missing."""
        record = change["record"]
        wrong = "" if record is None else misfit(record)
        self._record = None if wrong else record
        if record is None:
            why = f"no run '{self._run}' was started on this node; is its name right?"
            return {"state": "unknown", "message": why}
        if wrong:
            why = f"the record of '{self._run}' on this node cannot be used ({wrong})"
            return {"state": "unknown", "message": why}
        self.facts = {name: record.get(name) for name in _FACTS}
        if record["state"] in ENDS:
            return {"state": record["state"], "cause": record.get("cause")}
        asked = change.get("queue")
        self._in_queue = settled(record, newest_job(*asked)) if asked else None
        waits = self._in_queue and self._in_queue["state"] == "queued"
        self._gone_since = None if change["alive"] or waits else time.monotonic()
        return None

    def _process_metrics(self, metrics: Mapping[str, Any], draws: bool) -> None:
        """Process whole lines written since the supervisor began; half a line waits.

        Earlier ones are of a launch that is over, unless this node has come back to a run that went
        on without it: it then gets the lines of the others, and a line that it is with them again.
        """
        if metrics["anew"]:  # a resumed run replaces the file
            self._story, self._earlier, self._half = Story(), Story(), ""
        *lines, self._half = (self._half + metrics["text"]).split("\n")
        began = self._record.get("began", "")[:_TO_THE_SECOND]  # runs of earlier versions
        for line in parse(lines):
            kind = line["kind"]
            if str(line.get("time"))[:_TO_THE_SECOND] < began:
                self._earlier = Story() if kind == "start" else self._earlier
                self._earlier.add(line)
                continue
            if kind == "team" and not self._story.launches:
                self._story = self._earlier
            known = len(self._story.plans)
            self._story.add(line)
            plans = self._story.plans
            if len(plans) > known and draws and (news := split_news(plans)):
                self._screen.line(news)

    def _lost(self) -> dict[str, Any] | None:
        """Return the outcome if supervisor or node are gone; mention a node that is silent."""
        silent = self._stream.silent
        if self._gone_since is not None:
            ended = self._in_queue if self._in_queue and self._in_queue["state"] in ENDS else None
            returns = self._record.get("unit") or (self._in_queue and not ended)
            limit = _GONE_OF_A_UNIT if returns else _GONE
            if self._stream.answered - self._gone_since > limit:
                if ended:
                    return {"state": ended["state"], "cause": ended["cause"]}
                return {"state": "lost", "gone": True, "message": GONE}
        # A node that is off may come back as long as the others are at it.
        if silent > self._patience and not self._board.others_answer():
            why = f"no answer for {duration(silent)}: {self._stream.error or 'nothing was heard'}"
            return {"state": "lost", "message": why}
        if silent > _SECONDS_TILL_MENTIONED and not self._away:
            self._screen.line(f"{self._node} does not answer; still trying")
            self._away = True
        return None
