"""The teams of a run, one after another, and why each ended. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hearth.supervisor.cause import Cause
from hearth.supervisor.decisions.actions import RecordCause, RecordEnd, RecordTraining
from hearth.supervisor.decisions.voting import Config


@dataclass(frozen=True)
class TeamRecord:
    """The record of the teams that this node was committed to.

    Attributes:
        now: the last one; None before the first.
        trained: whether this node trains in it, or has.
        broke: the first cause of its break.
        unexplained: the node whose ranks died and ended the last team on record, without a word.
    """

    now: Config | None = None
    trained: bool = False
    broke: Cause | None = None
    unexplained: str = ""

    def has(self, node: str) -> bool:
        """Return whether a node is in the present team."""
        return self.now is not None and node in self.now.nodes

    def follow(self, team: Config) -> tuple[TeamRecord, list[RecordEnd]]:
        """Begin a team, which ends the one before it."""
        record, ended = self.end(team)
        return replace(record, now=team), ended

    def trains(self) -> tuple[TeamRecord, list[RecordTraining]]:
        """Record that this node trains in the present team."""
        assert self.now
        return replace(self, trained=True), [RecordTraining(self.now)]

    def breaks(self, cause: Cause) -> TeamRecord:
        """Keep the first cause of the present team's break."""
        return replace(self, broke=self.broke or cause)

    def forget_leave(self, node: str) -> TeamRecord:
        """Take back that the team breaks as a node leaves: its owner has thought better of it."""
        if self.broke and (self.broke.node, self.broke.kind) == (node, "away"):
            return replace(self, broke=None)
        return self

    def end(self, following: Config | None = None) -> tuple[TeamRecord, list[RecordEnd]]:
        """Record the end of the team that has trained, if any, for the reason that broke it."""
        over = replace(self, trained=False, broke=None)
        if not (self.trained and self.now):
            return over, []
        change = _change(self.now, following) if following else None
        died = change if change and change.kind == "rank_failed" else None
        unexplained = died.node if died and not self.broke else ""
        return replace(over, unexplained=unexplained), [RecordEnd(self.broke or change)]

    def explain(self, cause: Cause) -> tuple[TeamRecord, list[RecordCause]]:
        """Record why a node's ranks died, once its torchrun has told: the others went on before."""
        if cause.node != self.unexplained:
            return self, []
        return replace(self, unexplained=""), [RecordCause(cause)]


def _change(team: Config, following: Config) -> Cause | None:
    """Return the cause of a change of teams, from their nodes alone."""
    if out := [node for node in team.nodes if node not in following.nodes]:
        return Cause(out[0], None, "rank_failed", f"a rank of {', '.join(out)} ended: see its log")
    if joined := [node for node in following.nodes if node not in team.nodes]:
        return Cause(joined[0], None, "node_back", f"{', '.join(joined)} joined")
    return None
