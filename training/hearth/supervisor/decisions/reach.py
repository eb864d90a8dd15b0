"""The proof that nodes can form a group: their ranks must reach each other. Pure.

The supervisors' own connections prove nothing of it: they were made before a firewall came up
perhaps, or it lets their port pass alone. So once a node is ready to join a team, all nodes prove
that they reach each other's file servers, which listen as their ranks do. A group at work is given
up for a larger one only once each of its pairs has proved it both ways, for just that node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from hearth.supervisor.decisions.voting import newest_committed
from hearth.supervisor.messages import Report

Reports = Mapping[str, Report]


def members_of(reports: Reports) -> tuple[str, ...]:
    """Return the nodes of the newest team that any of these nodes knows of."""
    newest = newest_committed(report.votes for report in reports.values())
    return newest.nodes if newest else ()


def may_meet(one: Report, other: Report, members: Collection[str]) -> bool:
    """Return whether two nodes may be in a team together, as far as they reach each other.

    Those of the last team, the `members`, need no proof; nor does a node that only votes.
    """
    if one.leaving or other.leaving:
        return True
    return not _is_gap(one, other) and _proved(one, other, {one.node, other.node} - {*members})


def all_meet(reports: Reports, team: Collection[str]) -> bool:
    """Return whether all pairs of a team have proved that they reach each other, for this team."""
    joining = {*team} - {*members_of(reports)}
    return all(
        _proved(reports[one], reports[other], joining) and other in reports[one].reached
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
    """Return a sentence for each pair of connected nodes of which one does not reach the other."""
    return tuple(
        f"{node} cannot reach {other} {why}"
        for node, report in reports.items()
        for other, why in sorted(report.unreached.items())
        if other in reports
    )


def as_proved(report: Report, nodes: tuple[str, ...]) -> Report:
    """Return a report of a node as if it had proved that it reaches these nodes."""
    return replace(report, reached=nodes, joining=nodes)


def _is_gap(one: Report, other: Report) -> bool:
    return one.node in other.unreached or other.node in one.unreached


def _proved(one: Report, other: Report, joining: Collection[str]) -> bool:
    """Return whether two nodes have proved that they reach each other for those that join."""
    if not joining:
        return True
    proved = other.node in one.reached and one.node in other.reached
    return proved and {*joining} <= {*one.joining} & {*other.joining}
