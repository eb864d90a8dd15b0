"""The choice of the next team: the largest group of nodes that may and can train together. Pure.

Their ranks must reach each other. The supervisors' own connections prove nothing of it: they may be
older than a firewall, or it lets their port pass alone. So once a node is ready to join a team, all
nodes prove that they reach each other's file servers, which listen as their ranks do. A group at
work is given up for a larger one only once each of its pairs has proved it both ways, for just that
node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from hearth.supervisor.decisions.voting import (
    Attempt,
    Refusal,
    Votes,
    may_attempt,
    newest_committed,
)
from hearth.supervisor.messages import TEAMED, WAITING, NodeReport, Reaches


@dataclass(frozen=True)
class TeamSettings:
    """Settings of a run, on every node the same but for the first generation. Times are seconds.

    Attributes:
        nodes: all nodes of the run, in rank order.
        elastic: whether the others go on without a lost node.
        min_nodes: fewest nodes of a team.
        ready_timeout: for nodes that are missing before the first team.
        first_timeout: likewise, if that is longer, as for a run out of a queue.
        return_timeout: for nodes that are missing later, while too few are left; 0: the first loss
            ends the run.
        first_generation: lowest generation of a team that this node proposes, 1 or more.
        relaunched: whether ranks live for one team only, and do not report their work.
        scripted: whether they run a user's script, which may save its state when it is to end.
    """

    nodes: tuple[str, ...]
    first_generation: int = 1
    elastic: bool = True
    min_nodes: int = 1
    ready_timeout: float = 120.0
    return_timeout: float = 3600.0
    first_timeout: float = 0.0
    relaunched: bool = False
    scripted: bool = False


@dataclass(frozen=True)
class TeamPlan:
    """A team that may be formed; `fresh`: no node has the run's state, all load together."""

    attempt: Attempt
    fresh: bool

    @property
    def team(self) -> tuple[str, ...]:
        """The nodes of the team, in rank order."""
        return self.attempt.config.nodes


def next_team(
    settings: TeamSettings,
    reports: Mapping[str, NodeReport],
    waiting: Collection[str] = (),
    avoid: Collection[str] = (),
    impatient: bool = False,
) -> TeamPlan | Refusal | None:
    """Return the team to form now, why there is none, or None while some node must be waited for.

    Every node that knows the same reports finds the same team; the first node of it proposes it.

    Args:
        settings: of the run.
        reports: of this node and of all that are connected, in rank order.
        waiting: nodes to treat as if their ranks had left their group already.
        avoid: nodes to leave out for now, as forming a group with them failed.
        impatient: whether nodes that are ready begin anew without those whose ranks are not.
    """
    reports = {
        node: replace(report, state="paused") if node in waiting else report
        for node, report in reports.items()
    }
    if any(report.state in TEAMED for report in reports.values()):
        return None
    members = members_of(reports)
    usable = {
        node: report
        for node, report in reports.items()
        if not report.ended and node not in avoid and _may_vote(report, members)
    }
    if any(_has_state(report) for report in reports.values()):
        candidates = {node for node, report in usable.items() if report.state in WAITING}
        return _best(settings, usable, candidates, members, fresh=False)
    able = {node: report for node, report in usable.items() if not report.leaving}
    able = {node: report for node, report in able.items() if not _lacks_its_disk(report)}
    ready = {node for node, report in able.items() if report.state == "ready"}
    late = able.keys() - ready
    if late and not (impatient and ready):
        return None
    if is_open(reports, ready):
        return None
    return _best(settings, usable, ready, members, fresh=True)


def returns_suffice(
    settings: TeamSettings, reports: Mapping[str, NodeReport], avoid: Collection[str] = ()
) -> bool:
    """Return whether a team could be formed if owners let go of every machine they have now."""
    begun = any(_has_state(report) for report in reports.values())

    def returned(report: NodeReport) -> NodeReport:
        report = as_proved(report, settings.nodes)
        if not report.returns:
            return report
        waits = report.state if report.state in WAITING else "loaded" if begun else "ready"
        return replace(report, state=waits, leaving="", returns=False)

    later = {node: returned(report) for node, report in reports.items()}
    return isinstance(next_team(settings, later, avoid=avoid, impatient=True), TeamPlan)


def _may_vote(report: NodeReport, members: Collection[str]) -> bool:
    """Return whether a node can vote: before the first team also without its disk."""
    return not report.voteless or (not members and report.votes == Votes())


def _lacks_its_disk(report: NodeReport) -> bool:
    """Return whether the disk of a node keeps it out of the first team: it only votes."""
    return bool(report.voteless or (report.failure and report.failure.of_disk))


def _has_state(report: NodeReport) -> bool:
    """Return whether a node's living ranks have the run's state."""
    return report.trained > 0 and report.state in WAITING | TEAMED


def _best(
    settings: TeamSettings,
    usable: dict[str, NodeReport],
    candidates: set[str],
    members: Collection[str],
    fresh: bool,
) -> TeamPlan | Refusal | None:
    """Return the best team among the candidates, or the refusal of the largest group."""
    # Ranks that failed are to be started again: their node still has its vote.
    leaving = {node for node, report in usable.items() if report.only_votes}
    stay = usable.keys() - leaving
    if not fresh and stay and not any(_has_state(usable[node]) for node in candidates - leaving):
        leaving -= candidates  # The others must get the state from them first.
    plans, refusals = [], []
    # The vote of such a node is asked for only where it decides: its machine may be busy.
    away = {node for node in leaving if usable[node].state in ("away", "failed")}
    groups = [
        group
        for voters in (candidates | leaving - away, candidates | leaving)
        for group in cliques({node: usable[node] for node in voters}, members)
    ]
    for group in sorted(groups, key=len, reverse=True):
        found = _attempt(settings, usable, group, leaving & group, fresh)
        (refusals if isinstance(found, Refusal) else plans).append(found)
    ranks = settings.nodes.index
    if plans:
        return min(
            plans,
            key=lambda plan: (
                -len(plan.team),
                len(plan.attempt.leaving),
                [*map(ranks, plan.attempt.voters)],
            ),
        )
    return refusals[0] if refusals else None


def _attempt(
    settings: TeamSettings,
    usable: dict[str, NodeReport],
    group: set[str],
    leaving: set[str],
    fresh: bool,
) -> TeamPlan | Refusal:
    """Return the plan for the team of a group without those that leave, or why it may not be."""
    team = [node for node in settings.nodes if node in group - leaving]
    absent = tuple(node for node in settings.nodes if node not in team)
    if all(usable[node].returns for node in team or group):
        return Refusal(
            "their owners want all machines that are here",
            tuple(node for node, report in usable.items() if report.returns),
        )
    if not team:
        return Refusal("every node that is here leaves the run")
    if not settings.elastic and absent:
        return Refusal("the run goes on with all its nodes only (elastic=off)", absent)
    if len(team) < settings.min_nodes:
        return Refusal(f"the run needs {settings.min_nodes} nodes (min_nodes)", absent)
    if not fresh and not any(_has_state(usable[node]) for node in team):
        return Refusal("no node here has the state of the run", absent)
    attempt = may_attempt(
        {node: usable[node].votes for node in group}, settings.nodes, tuple(leaving)
    )
    if isinstance(attempt, Refusal):
        return attempt
    generation = max(attempt.config.generation, settings.first_generation)
    return TeamPlan(replace(attempt, config=replace(attempt.config, generation=generation)), fresh)


def cliques(reports: dict[str, NodeReport], members: Collection[str] = ()) -> Iterator[set[str]]:
    """Yield the largest groups of nodes that can all meet each other (Bron, Kerbosch).

    They are connected, and their ranks reach each other (see `may_meet`).

    With a pivot (Tomita), as without one the time doubles with each node, even if all are
    connected.
    """
    near = {
        node: {
            other
            for other, its in reports.items()
            if other != node
            and other in report.connected
            and node in its.connected
            and may_meet(report, its, members)
        }
        for node, report in reports.items()
    }

    def grow(group: set[str], possible: set[str], done: set[str]) -> Iterator[set[str]]:
        if not possible and not done:
            yield group
            return
        pivot = max(sorted(possible | done), key=lambda node: len(possible & near[node]))
        for node in sorted(possible - near[pivot]):
            yield from grow(group | {node}, possible & near[node], done & near[node])
            possible, done = possible - {node}, done | {node}

    return grow(set(), set(near), set()) if near else iter(())


Reports = Mapping[str, NodeReport]


def members_of(reports: Reports) -> tuple[str, ...]:
    """Return the nodes of the newest team that any of these nodes knows of."""
    newest = newest_committed(report.votes for report in reports.values())
    return newest.nodes if newest else ()


def may_meet(one: NodeReport, other: NodeReport, members: Collection[str]) -> bool:
    """Return whether two nodes may be in a team together, as far as they reach each other.

    Those of the last team, the `members`, need no proof; nor does a node that only votes.
    """
    if one.only_votes or other.only_votes:
        return True
    return not _is_gap(one, other) and _proved(one, other, {one.node, other.node} - {*members})


def all_meet(reports: Reports, team: Collection[str]) -> bool:
    """Return whether all pairs of a team have proved that they reach each other, for this team."""
    joining = {*team} - {*members_of(reports)}
    return all(
        _proved(reports[one], reports[other], joining) and other in reports[one].reaches.reached
        for one in team
        for other in team
        if one != other
    )


def is_open(reports: Reports, team: Collection[str]) -> bool:
    """Return whether it is yet to be seen if some pair of these nodes may be in a team together."""
    members = members_of(reports)
    return any(
        not may_meet(reports[one], reports[other], members)
        and not _is_gap(reports[one], reports[other])
        for one in team
        for other in team
        if one != other
    )


def gaps(reports: Reports) -> tuple[str, ...]:
    """Return a sentence for each connected node that does not reach another connected one."""
    return tuple(
        f"{node} cannot reach {other} {why}"
        for node, report in reports.items()
        for other, why in sorted(report.reaches.unreached.items())
        if other in reports
    )


def as_proved(report: NodeReport, nodes: tuple[str, ...]) -> NodeReport:
    """Return a report of a node as if it had proved that it reaches these nodes."""
    return replace(report, reaches=Reaches(nodes, nodes))


def _is_gap(one: NodeReport, other: NodeReport) -> bool:
    return one.node in other.reaches.unreached or other.node in one.reaches.unreached


def _proved(one: NodeReport, other: NodeReport, joining: Collection[str]) -> bool:
    """Return whether two nodes have proved that they reach each other for those that join."""
    if not joining:
        return True
    proved = other.node in one.reaches.reached and one.node in other.reaches.reached
    return proved and {*joining} <= {*one.reaches.joining} & {*other.reaches.joining}
