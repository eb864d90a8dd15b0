"""A node's view of the run, from which it decides, and the moves that it decides on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hearth.ranks.orders import Interrupt, Leave, Load, Pause
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.decisions.voting import Attempt, Config
from hearth.supervisor.messages import Report


@dataclass(frozen=True)
class Settings:
    """Settings of a run, the same on every node. Times are seconds.

    Attributes:
        nodes: all nodes of the run, in rank order.
        elastic: whether the others go on without a lost node.
        min_nodes: fewest nodes of a team.
        ready_timeout: for nodes that are missing before the first team.
        first_timeout: likewise, if that is longer, as for a run out of a queue.
        return_timeout: for nodes that are missing later, while too few are left; 0: the first loss
            ends the run.
        first_generation: lowest generation of a team, 1 or more.
        relaunched: whether ranks live for one team only, and do not tell what they do.
    """

    nodes: tuple[str, ...]
    first_generation: int = 1
    elastic: bool = True
    min_nodes: int = 1
    ready_timeout: float = 120.0
    return_timeout: float = 3600.0
    first_timeout: float = 0.0
    relaunched: bool = False


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
class View:
    """The knowledge of a node at one moment.

    Attributes:
        now: the time in seconds, of any clock that goes on evenly; all other times are of it.
        began: time at which this supervisor began.
        own: this node's report; its `connected` is not read.
        heard: by connected node (never this one) its last report.
        gone: by node that is not connected now, but was, or that refuses to be, its absence.
        team: the team that this node was last told to form, since its supervisor's start.
        proposal: this node's own proposal in flight.
        evaluates: whether a rank of this node evaluates, which may take far longer than a step.
        jitter: a random number between 0 and 1, for the wait after a refused proposal.
        queued: by node of the run that is not connected and waits for its turn in the queue there,
            the time at which it last said so.
    """

    now: float
    began: float
    settings: Settings
    own: Report
    heard: Mapping[str, Heard] = field(default_factory=dict)
    gone: Mapping[str, Absence] = field(default_factory=dict)
    team: Config | None = None
    proposal: Proposal | None = None
    evaluates: bool = False
    jitter: float = 0.5
    queued: Mapping[str, float] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """The name of this node."""
        return self.own.node

    @property
    def reports(self) -> dict[str, Report]:
        """The reports of this node and of all connected ones, in rank order."""
        given = {node: each.report for node, each in self.heard.items()}
        given[self.node] = replace(self.own, connected=tuple(self.heard))
        return {node: given[node] for node in self.settings.nodes if node in given}

    @property
    def missing(self) -> tuple[str, ...]:
        """The nodes of the run that are not connected, in rank order."""
        return tuple(node for node in self.settings.nodes if node not in self.reports)

    @property
    def wanted(self) -> dict[str, str]:
        """By connected node that the house wants, the reason, in rank order."""
        return {node: report.leaving for node, report in self.reports.items() if report.returns}


@dataclass(frozen=True)
class TellRanks:
    """Send this order to all ranks of this node, to those that start later, too."""

    order: Load | Pause | Interrupt | Leave


@dataclass(frozen=True)
class ProposeTeam:
    """Promise this team on the own disk, and send `Propose` to the other voters."""

    attempt: Attempt
    fresh: bool


@dataclass(frozen=True)
class DropProposal:
    """Forget the own proposal in flight; `why` goes into the log."""

    why: str


@dataclass(frozen=True)
class StartTeam:
    """All voters promised the own proposal: forget it, and send `FormTeam` to the team.

    The proposer, too, forms it only if it is in it: a node that leaves may propose.
    """

    config: Config
    fresh: bool


@dataclass(frozen=True)
class RestartRanks:
    """End this node's ranks, if any live, and start them again; `why` goes into the log."""

    why: str


@dataclass(frozen=True)
class RestRanks:
    """End this node's ranks, if any live, and have none until the house lets go of the machine."""


@dataclass(frozen=True)
class SayWaiting:
    """Record the nodes that this node waits for, and say so; () when it waits no longer.

    `wanted` has, by node, why the house wants it, if nothing else holds up the run. They are among
    the `missing`, where a lost node may be that the run can do without.
    """

    missing: tuple[str, ...]
    why: str = ""
    wanted: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SayUnreached:
    """Record the pairs of nodes of which one does not reach the other; () for none any more."""

    gaps: tuple[str, ...]


@dataclass(frozen=True)
class Conclude:
    """End this node's part with this outcome: end its ranks, record it, close the mesh.

    `everywhere`: it is the outcome of the run, which goes to all connected nodes as `Verdict`.
    """

    outcome: LaunchOutcome
    everywhere: bool = True


@dataclass(frozen=True)
class Depart:
    """The ranks of this node, which leaves in order, have ended: leave the record open and go."""

    why: str


Move = (
    TellRanks
    | ProposeTeam
    | DropProposal
    | StartTeam
    | RestartRanks
    | RestRanks
    | SayWaiting
    | SayUnreached
    | Conclude
    | Depart
)
