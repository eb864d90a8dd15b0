"""All that a node knows of its run at one moment, frozen: each event makes a new one. Pure."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from hearth.supervisor.cause import Cause, RanksFailure
from hearth.supervisor.decisions.actions import Conclude
from hearth.supervisor.decisions.events import Reaches
from hearth.supervisor.decisions.forming import TeamPlan, TeamSettings, next_team
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.decisions.team_record import TeamRecord
from hearth.supervisor.decisions.voting import Attempt, Config, Refusal, Votes, newest_committed
from hearth.supervisor.messages import NodeReport, Stop

AVOID = 10.0
"""Seconds that a node is left out after a group with it could not be formed, or voted on.

Twice as long after each further one, as each attempt may cost the others half a minute.
"""

MOST_STRIKES = 7

WAITS = (0.0, 5.0, 60.0)
"""Seconds before each start of ranks that failed in a row.

What is gone for a minute, such as a driver or a mount, ends no node's part in the run.
"""


@dataclass(frozen=True)
class Futility:
    """Count of failures since the last step gained."""

    count: int = 0
    step: int = -1

    def added(self, step: int) -> Futility:
        """Return the count after another failure, after `step` steps."""
        return Futility(1 if step > self.step else self.count + 1, max(step, self.step))


@dataclass(frozen=True)
class Promise:
    """A promise of this node that may still become a team."""

    proposer: str
    generation: int
    at: float


@dataclass(frozen=True)
class Memory:
    """The memory of a node's decisions.

    Attributes:
        ended: outcome by node whose ranks have ended, even if it is gone since.
        leaving: reason by node that leaves in order, even if it is gone since.
        failures: by node, in the order heard, its ranks' own error and the time it was heard.
        lost: the last loss of a member of this node's team.
        left_at: time when this node was asked to leave.
        returns: whether it was asked by its owner, and comes back.
        waits_at: time since which its ranks wait, in no group; None while they do not.
        team_at: time when this node was told to form its team.
        team: that team's generation.
        judged: generation of the last team whose break was judged.
        interrupted, paused: generation of the last group that was interrupted or paused.
        told_leave: whether the ranks that now live were told to leave.
        free_by: time when they are ended if they have not done it by themselves; None: never.
        broken: breaks of groups that nothing else explains.
        failed_at: time when this node's ranks failed; None if they have not, or live again.
        trains_since: time since which they have trained in their last group; None before it.
        restarts: failures of this node's ranks in a row.
        failed_forms: groups in a row that could not be formed.
        late: whether this node has to start its ranks again, as it did not form them.
        avoid: nodes to leave out of teams, and until when.
        strikes: times in a row that a node did not form a group with the others, or vote on it.
        silent: the voters that did not answer this node's last proposal in time.
        promise: this node's last promise.
        retry_at: earliest time of this node's next proposal.
        refusals: refused proposals in a row.
        idle_since: time since which no node that is connected trains; None while one does.
        held_until: last time when nothing but owners, or queues, held up the run.
        verdict_at: time when it was known that the run failed.
        said: the missing nodes that were last said.
        said_wanted: the nodes that their owners want, with reasons, that were last said to be
            waited for.
        said_gaps: the pairs that do not reach each other, as last said.
    """

    ended: Mapping[str, str] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, tuple[RanksFailure, float]] = field(default_factory=dict)
    lost: Cause | None = None
    left_at: float | None = None
    returns: bool = False
    waits_at: float | None = None
    team_at: float = 0.0
    team: int = 0
    judged: int = 0
    interrupted: int = 0
    paused: int = 0
    told_leave: bool = False
    free_by: float | None = None
    broken: Futility = field(default_factory=Futility)
    restarts: int = 0
    failed_at: float | None = None
    trains_since: float | None = None
    failed_forms: int = 0
    late: bool = False
    avoid: Mapping[str, float] = field(default_factory=dict)
    strikes: Mapping[str, int] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    promise: Promise | None = None
    retry_at: float = 0.0
    refusals: int = 0
    idle_since: float | None = None
    held_until: float = 0.0
    verdict_at: float = 0.0
    said: tuple[str, ...] = ()
    said_wanted: Mapping[str, str] = field(default_factory=dict)
    said_gaps: tuple[str, ...] = ()

    @property
    def restart_wait(self) -> float:
        """Seconds between the failure of this node's ranks and their next start."""
        return WAITS[min(self.restarts, len(WAITS)) - 1]

    def avoided(self, now: float) -> set[str]:
        """Return the nodes to leave out of teams for now."""
        return {node for node, until in self.avoid.items() if now < until}

    def leaving_out(self, node: str, now: float) -> Memory:
        """Return the memory once a node is left out of teams, longer each time."""
        strikes = min(self.strikes.get(node, 0) + 1, MOST_STRIKES)
        until = now + AVOID * 2 ** (strikes - 1)
        return replace(
            self,
            strikes={**self.strikes, node: strikes},
            avoid={**self.avoid, node: until},
        )


LONG_START = 10.0
"""Seconds without news of ranks that start, after which the others go on if they can."""


@dataclass(frozen=True)
class Heard:
    """The last report of a connected node, and its time of arrival."""

    report: NodeReport
    at: float


@dataclass(frozen=True)
class Disconnection:
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
        since: time when it was sent.
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
        began: time when this supervisor began.
        ranks: this node's own.
        votes: its memory of teams; they bind it once they are on its disk.
        voteless: the reason why its disk takes no votes; "": it does.
        tried_at: time when votes were last sent to the disk.
        teams: the team that it was last told to form, since its supervisor's start, and its record.
        heard: by connected node (never this one) its last report.
        gone: by node that is not connected now, but was, or that refuses to be, its absence.
        proposal: this node's own proposal in flight.
        owner: the reason why the owner wants this machine; "": the run may have it.
        owner_reported: the same as this node reports it. Once the ranks were told to leave, the
            node is away before it returns: a request that is over meanwhile still stands, or the
            others would take their end for that of the run.
        leaving: the reason why this node leaves the others in order, to end.
        stop: the request to stop the run.
        verdict: the end of the run, which failed; this node may still save its state.
        evaluates: whether a rank of this node evaluates, which may take far longer than a step.
        serves: the port of its file server.
        checkpoint: the name of its newest checkpoint, while there are no ranks.
        reaches: the nodes that its connections reach, and those that they do not.
        reported: the report that the others have.
        memory: that of its decisions.
    """

    settings: TeamSettings
    node: str
    ranks: LocalRanks
    now: float = 0.0
    began: float = 0.0
    votes: Votes = field(default_factory=Votes)
    voteless: str = ""
    tried_at: float = 0.0
    teams: TeamRecord = field(default_factory=TeamRecord)
    heard: Mapping[str, Heard] = field(default_factory=dict)
    gone: Mapping[str, Disconnection] = field(default_factory=dict)
    proposal: Proposal | None = None
    owner: str = ""
    owner_reported: str = ""
    leaving: str = ""
    stop: Stop | None = None
    verdict: Conclude | None = None
    evaluates: bool = False
    serves: int = 0
    checkpoint: str = ""
    reaches: Reaches = field(default_factory=Reaches)
    reported: NodeReport | None = None
    memory: Memory = field(default_factory=Memory)

    def plan(
        self, waiting: Collection[str] = (), impatient: bool = False
    ) -> TeamPlan | Refusal | None:
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
    def own(self) -> NodeReport:
        """This node's report."""
        ranks = self.ranks
        return NodeReport(
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
            self.leaving or self.owner_reported,
            bool(self.owner_reported and not self.leaving),
            tuple(node for node, each in sorted(self.heard.items()) if each.report.leaving),
            self.stop,
            self.voteless,
            self.serves,
            self.checkpoint if ranks.away else "",
            self.reaches,
        )

    @cached_property
    def reports(self) -> dict[str, NodeReport]:
        """The reports of this node and of the connected ones not in `queued`, in rank order."""
        given = {node: each.report for node, each in self.heard.items()} | {self.node: self.own}
        there = given.keys() - self.queued.keys()
        return {node: given[node] for node in self.settings.nodes if node in there}

    @cached_property
    def queued(self) -> dict[str, str]:
        """By connected node that keeps the run waiting for its turn, the reason."""
        found = {node: each.report for node, each in self.heard.items()}
        return {node: report.why for node, report in found.items() if report.state == "queued"}

    @property
    def missing(self) -> tuple[str, ...]:
        """The nodes of the run that are not connected or only wait for its turn, in rank order."""
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

    def loss(self, node: str) -> Cause:
        """Return the cause for a node that is gone: which node to inspect, and why."""
        absence = self.gone.get(node)
        why, culprit = absence.why if absence else "is not connected", node
        if absence and absence.taken and not why.startswith("suspended"):
            message = f"{node} was lost ({why}): {absence.taken}"
        elif why.startswith(("broke off", "refused")):
            message = f"the supervisor of {node} broke off: it was killed or the machine went down"
        elif why.startswith("silent"):
            message = f"{node} was {why}: it hangs, sleeps, or its network is cut"
        elif why.startswith("suspended"):
            culprit = self.node
            message = f"{self.node} itself was {why}"
        else:
            message = f"{node} {why}"
        return Cause(culprit, None, "node_lost", message)

    @property
    def jitter(self) -> float:
        """A number between 0 and 1, another one for each node and refused proposal."""
        drawn = random.Random(f"{self.node} {self.votes.newest} {self.memory.refusals}")
        return drawn.random()
