"""Follow a run on one node until it ends there."""

from __future__ import annotations

import time
from typing import Any

from hearth.base.text import duration
from hearth.supervisor.cause import ENDS, generation_of
from hearth_controller.base.screen import Screen
from hearth_controller.runs.observed import GONE
from hearth_controller.watch.board import Board
from hearth_controller.watch.node_stream import NodeStream
from hearth_controller.watch.progress import state_text, tenths
from hearth_controller.watch.view import NodeView

_FACTS = ("rank", "nodes", "generation", "launches", "script", "job", "since")
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
        self._seen = NodeView()
        self._gone_since: float | None = None
        self._away = False
        self._outcome: dict[str, Any] | None = None
        self.facts: dict[str, Any] = {}

    def inspect(self) -> dict[str, Any] | None:
        """Show the node's next changes; return the outcome once the run has ended here."""
        changes = self._stream.read()
        if changes and self._away:
            self._screen.line(f"{self._node} answers again")
            self._away = False
        outcome, news = None, []
        for change in changes:
            news += self._seen.add(change)
            if "record" in change:
                self._outcome = self._outcome or self._state_changed()
            if self._seen.record:
                self.facts["reached"] = self._seen.reached
        # Its metrics tell how far it came, and whose are the newest.
        if not self._seen.behind or self._stream.silent > _SECONDS_TILL_MENTIONED:
            outcome = self._outcome
        draws, story = self._draws(), self._seen.story
        for moved in news if draws and not self._outcome else ():
            self._screen.line(moved)
        if draws:
            for team in self._board.not_yet_told(story.teams):
                self._screen.line(team.news)
        # The last steps of a run, all of a short one, come together with its end.
        record = self._seen.current
        if record and changes and draws and (not outcome or story.window):
            self._screen.progress(state_text(record, story), tenths(story))
        if record and draws and not outcome:
            self._screen.still()
        outcome = outcome or self._lost()
        if outcome:
            self._board.leave()
            if draws:
                self._screen.end()
        return outcome

    def _draws(self) -> bool:
        """Return whether this follower draws the run now; the others hear of its node."""
        if record := self._seen.record:
            group, rank = generation_of(record), record.get("rank") or 0
            self._board.note(group, rank, self._stream.answered)
        return self._board.draws()

    def _state_changed(self) -> dict[str, Any] | None:
        """Note a new record; return the outcome if it is one of an end, or missing."""
        record, in_queue = self._seen.record, self._seen.in_queue
        if self._seen.wrong:
            why = f"the record of '{self._run}' on this node cannot be used ({self._seen.wrong})"
            return {"state": "unknown", "message": why}
        if record is None:
            why = f"no run '{self._run}' was started on this node; is its name right?"
            return {"state": "unknown", "message": why}
        self.facts = {name: record.get(name) for name in _FACTS}
        if record["state"] in ENDS:
            return {"state": record["state"], "cause": record.get("cause")}
        waits = in_queue and in_queue["state"] == "queued"
        self._gone_since = None if self._seen.alive or waits else time.monotonic()
        return None

    def _lost(self) -> dict[str, Any] | None:
        """Return the outcome if supervisor or node are gone; mention a node that is silent."""
        silent = self._stream.silent
        if self._gone_since is not None:
            in_queue = self._seen.in_queue
            ended = in_queue if in_queue and in_queue["state"] in ENDS else None
            returns = self._seen.record.get("unit") or (in_queue and not ended)
            limit = _GONE_OF_A_UNIT if returns else _GONE
            if self._stream.answered - self._gone_since > limit:
                if ended:
                    return {"state": ended["state"], "cause": ended["cause"]}
                return {"state": "lost", "gone": True, "message": GONE}
        # A node that is off may come back as long as the others train.
        if silent > self._patience and not self._board.others_answer():
            why = f"no answer for {duration(silent)}: {self._stream.error or 'nothing was heard'}"
            return {"state": "lost", "message": why}
        if silent > _SECONDS_TILL_MENTIONED and not self._away:
            self._screen.line(f"{self._node} does not answer; still trying")
            self._away = True
        return None
