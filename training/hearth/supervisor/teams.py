"""The teams of a run, one after another, and the causes on record for which they ended."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hearth.supervisor.cause import Cause
from hearth.supervisor.decisions import causes
from hearth.supervisor.decisions.voting import Config
from hearth.supervisor.record import RunRecord


class Teams:
    """The teams that this node was committed to. `file` is where its `record` is written.

    Attributes:
        now: the last one; None before the first.
    """

    def __init__(self, record: RunRecord, file: Path) -> None:
        self.now: Config | None = None
        self._record, self._file = record, file
        self._trained = False
        self._broke: Cause | None = None
        self._unexplained = ""

    @property
    def generation(self) -> int:
        """Generation of the present team; 0 before the first."""
        return self.now.generation if self.now else 0

    def has(self, node: str) -> bool:
        """Return whether a node is in the present team."""
        return self.now is not None and node in self.now.nodes

    def follow(self, team: Config) -> None:
        """Begin a team, which ends the one before it."""
        self.end(team)
        self.now = team

    def trains(self) -> None:
        """Record that this node trains in the present team."""
        assert self.now
        self._trained = True
        self._record.generation = self.now.generation
        self._record.cause = None
        self._record.missing = []
        self._record.enter("running")
        self._record.write(self._file)

    def breaks(self, cause: Cause) -> None:
        """Keep the first cause for which the present team breaks."""
        self._broke = self._broke or cause

    def forget_leave(self, node: str) -> None:
        """Take back that the team breaks as a node leaves: its house has thought better of it."""
        if self._broke and (self._broke.node, self._broke.kind) == (node, "away"):
            self._broke = None

    def end(self, following: Config | None = None) -> None:
        """Record the end of the team that has trained, if any, for the reason that broke it."""
        if self._trained and self.now:
            change = causes.change(self.now, following) if following else None
            cause = self._broke or change
            died = change if change and change.kind == "rank_failed" else None
            self._unexplained = died.node if died and not self._broke else ""
            self._record.launch_ended(cause)
            self._record.write(self._file)
        self._trained, self._broke = False, None

    def explain(self, cause: Cause) -> None:
        """Record why a node's ranks died, once its torchrun has told: the others went on before."""
        if cause.node == self._unexplained:
            self._unexplained = ""
            self._record.launches[-1]["cause"] = dataclasses.asdict(cause)
            self._record.write(self._file)
