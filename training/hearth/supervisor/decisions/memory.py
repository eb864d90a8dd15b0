"""The memory of a node's decisions, from one event to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hearth.supervisor.cause import Cause, Failure

AVOID = 10.0
"""Seconds for which a node is left out after a group with it could not be formed, or voted on.

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
        left_at: time at which this node was asked to leave.
        returns: whether it was asked by its owner, and comes back.
        waits_at: time since which its ranks wait, in no group; None while they do not.
        team_at: time at which this node was told to form its team.
        team: that team's generation.
        judged: generation of the last team whose break was judged.
        interrupted, paused: generation of the last group that was interrupted or paused.
        told_leave: whether the ranks that now live were told to leave.
        free_by: time at which they are ended if they have not done it by themselves; None: never.
        broken: breaks of groups that nothing else explains.
        failed_at: time at which this node's ranks failed; None if they have not, or live again.
        trains_since: time since which they have trained in their last group; None before it.
        restarts: failures of this node's ranks in a row.
        failed_forms: groups in a row that could not be formed.
        late: whether this node has to start its ranks again, as it did not form them.
        avoid: nodes to leave out of teams, and until when.
        strikes: times in a row that a node did not form a group with the others, or vote on it.
        silent: the voters that did not answer this node's last proposal in time.
        promise: this node's last promise.
        retry_at: time before which this node proposes nothing.
        refusals: refused proposals in a row.
        idle_since: time since which no node that is connected trains; None while one does.
        held_until: last time at which nothing but owners held up the run.
        verdict_at: time at which it was known that the run failed.
        said: the missing nodes that were last said.
        said_wanted: the nodes that their owners want, with reasons, that were last said to be
            waited for.
        said_gaps: the pairs that do not reach each other, as last said.
    """

    ended: Mapping[str, str] = field(default_factory=dict)
    leaving: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, tuple[Failure, float]] = field(default_factory=dict)
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
