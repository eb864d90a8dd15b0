"""All that a node knows of its run at one moment: frozen, so that each event makes a new one."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hearth.supervisor.decisions.actions import Conclude
from hearth.supervisor.decisions.events import Reaches
from hearth.supervisor.decisions.forming import Plan, next_team
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.decisions.memory import Memory
from hearth.supervisor.decisions.settings import Settings
from hearth.supervisor.decisions.team_record import TeamRecord
from hearth.supervisor.decisions.voting import Attempt, Config, Refusal, Votes, newest_committed
from hearth.supervisor.messages import Report, Stop

LONG_START = 10.0
"""Seconds without news of ranks that start, after which the others go on if they can."""


@dataclass(frozen=True)
class Heard:
    """The last report of a connected node, and the time at which it arrived."""

    report: Report
    at: float


@dataclass(frozen=True)
class Absence:
    """The reason why a node is not connected ("silent for 7 s"), and since when.

    `why` begins with "broke off", "silent", "refused" (its machine answers, but no supervisor of
    this run), or "suspended" (this node was, so that all connections ended); or it is any other
    reason, in words. `taken` tells that another machine has the node's address, or is ''.
    """

    why: str
    since: float
    taken: str = ""


@dataclass(frozen=True)
class Proposal:
    """This node's own proposal in flight.

    Attributes:
        attempt: the proposed team and its voters.
        fresh: as in `Propose`.
        since: time at which it was sent.
        yes: the voters that promised, this node too once its promise is on its disk.
        refused: reasons by voter.
    """

    attempt: Attempt
    fresh: bool
    since: float
    yes: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class State:
    """The state of a node in a run. Its times are of one clock that goes on evenly, in seconds.

    Attributes:
        now: the time of the last event.
        began: time at which this supervisor began.
        ranks: this node's own.
        votes: what it remembers of teams; they bind it once they are on its disk.
        voteless: the reason why its disk takes no votes; "": it does.
        tried_at: time at which votes were last sent to the disk.
        teams: the team that it was last told to form, since its supervisor's start, and its record.
        heard: by connected node (never this one) its last report.
        gone: by node that is not connected now, but was, or that refuses to be, its absence.
        queued: by node of the run that is not connected and waits for its turn in the queue there,
            the reason, and the time at which it last said so.
        proposal: this node's own proposal in flight.
        owner: the reason for which the owner wants this machine; "": the run may have it.
        owner_told: the same as the others are told. Once the ranks were told to leave, the node is
            away before it returns: a wish that is over meanwhile still stands, or the others would
            take their end for that of the run.
        leaving: the reason why this node leaves the others in order, to end.
        stop: the request to stop the run.
        verdict: the end of the run, which failed; this node may still save its state.
        evaluates: whether a rank of this node evaluates, which may take far longer than a step.
        serves: the port of its file server.
        checkpoint: the name of its newest checkpoint, while there are no ranks.
        reaches: the nodes that its connections reach, and those that they do not.
        told: the report that the others have.
        memory: what its decisions have to remember.
    """

    settings: Settings
    node: str
    ranks: LocalRanks
    now: float = 0.0
    began: float = 0.0
    votes: Votes = field(default_factory=Votes)
    voteless: str = ""
    tried_at: float = 0.0
    teams: TeamRecord = field(default_factory=TeamRecord)
    heard: Mapping[str, Heard] = field(default_factory=dict)
    gone: Mapping[str, Absence] = field(default_factory=dict)
    queued: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    proposal: Proposal | None = None
    owner: str = ""
    owner_told: str = ""
    leaving: str = ""
    stop: Stop | None = None
    verdict: Conclude | None = None
    evaluates: bool = False
    serves: int = 0
    checkpoint: str = ""
    reaches: Reaches = field(default_factory=Reaches)
    told: Report | None = None
    memory: Memory = field(default_factory=Memory)

    def plan(self, waiting: Collection[str] = (), impatient: bool = False) -> Plan | Refusal | None:
        """Return the team to form now, as `forming.next_team`, without the nodes to leave out.

        Ranks that are long in starting, as after the loss of a card, count as failed: the others
        may go on with their node's vote.
        """
        avoid = self.memory.avoided(self.now)
        long = self.now - LONG_START
        reports = {
            node: replace(report, state="failed")
            if report.state == "starting" and node in self.heard and self.heard[node].at < long
            else report
            for node, report in self.reports.items()
        }
        return next_team(self.settings, reports, waiting, avoid, impatient)

    def remember(self, **changes: Any) -> State:
        """Return the state with these changes of its memory."""
        return replace(self, memory=replace(self.memory, **changes))

    @property
    def team(self) -> Config | None:
        """The team that this node was last told to form."""
        return self.teams.now

    @cached_property
    def own(self) -> Report:
        """This node's report."""
        ranks = self.ranks
        return Report(
            self.node,
            ranks.state,
            self.votes,
            tuple(node for node in self.settings.nodes if node in self.heard),
            self.team.generation if self.team else 0,
            ranks.trained,
            ranks.step,
            ranks.choices,
            ranks.why,
            ranks.failure,
            ranks.ended,
            self.leaving or self.owner_told,
            bool(self.owner_told and not self.leaving),
            tuple(node for node, each in sorted(self.heard.items()) if each.report.leaving),
            self.stop,
            self.voteless,
            self.serves,
            self.checkpoint if ranks.away else "",
            self.reaches.reached,
            self.reaches.joining,
            {**self.reaches.unreached},
        )

    @cached_property
    def reports(self) -> dict[str, Report]:
        """The reports of this node and of all connected ones, in rank order."""
        given = {node: each.report for node, each in self.heard.items()} | {self.node: self.own}
        return {node: given[node] for node in self.settings.nodes if node in given}

    @property
    def missing(self) -> tuple[str, ...]:
        """The nodes of the run that are not connected, in rank order."""
        return tuple(node for node in self.settings.nodes if node not in self.reports)

    @property
    def wanted(self) -> dict[str, str]:
        """By connected node that its owner wants, the reason, in rank order."""
        return {node: report.leaving for node, report in self.reports.items() if report.returns}

    @cached_property
    def newest(self) -> Config | None:
        """The newest team that a connected node knows of as agreed; None before the first."""
        return newest_committed(report.votes for report in self.reports.values())

    @cached_property
    def stopping(self) -> Stop | None:
        """The request to stop the run that a connected node knows of; one to stop at once first."""
        asked = [report.stopping for report in self.reports.values() if report.stopping]
        return max(asked, key=lambda stop: stop.now, default=None)

    @property
    def over(self) -> str:
        """The outcome of the run, if ranks have ended: "finished", "stopped" or "".

        Those of one node are enough if they are resident and know why. Relaunched ones do not:
        their group may have ended for a pause or a stop that their node is still to hear of.
        """
        ended, relaunched = self.memory.ended, self.settings.relaunched
        outcomes = {*ended.values()}
        if relaunched and self.stopping:
            return "stopped" if outcomes else ""
        if relaunched and not {*(self.newest.nodes if self.newest else ())} <= ended.keys():
            return ""
        return "finished" if "finished" in outcomes else next(iter(outcomes), "")

    @property
    def jitter(self) -> float:
        """A number between 0 and 1, another one for each node and refused proposal."""
        drawn = random.Random(f"{self.node} {self.votes.newest} {self.memory.refusals}")
        return drawn.random()
