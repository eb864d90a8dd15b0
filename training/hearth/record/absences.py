"""Nodes that a run was without: departures, returns, and their cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hearth.record.events import StartEvent, TeamEvent, first_line, short_time


@dataclass(frozen=True)
class NodeAbsence:
    """A time that the run went on without a node.

    Attributes:
        why: Why the node left; '' if its launch began without it.
        since: Number of steps before it left.
        until: Number of steps before it came back; None if it has not.
    """

    node: str
    why: str
    since: int
    until: int | None = None

    @property
    def text(self) -> str:
        """The absence in one line."""
        left = f"left after step {self.since} ({first_line(self.why)})"
        if not self.why:
            left = f"was away from step {self.since + 1} on"
        if self.until is None:
            return left
        return f"{left}, came {'back ' if self.why else ''}after step {self.until}"


def absences(launches: Sequence[StartEvent], teams: Iterable[TeamEvent]) -> list[NodeAbsence]:
    """Return the times that the run went on without one of its nodes, in order.

    A node that a launch has no rank of is not missed.
    """
    found: list[NodeAbsence] = []
    under_way: dict[str, int] = {}
    teams = list(teams)
    for number, launch in enumerate(launches):
        for step, present, reasons in _groups(launch, [t for t in teams if t.launch == number]):
            for node in [node for node in under_way if node in present]:
                at = under_way.pop(node)
                found[at] = replace(found[at], until=step)
            for node in dict.fromkeys(launch.nodes):
                if node not in present and node not in under_way:
                    under_way[node] = len(found)
                    found.append(NodeAbsence(node, reasons.get(node, ""), step))
    return found


def explained(team: TeamEvent, since: int, launches: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return why nodes left at a regroup, by supervisors, which know more than the other ranks.

    `since` is the generation of the group before it. `launches` are of a supervisor's record: each
    with the `generation` that ended and its `cause`.
    """
    left = dict(team.left)
    for launch in launches:
        cause, generation = launch.get("cause"), launch.get("generation")
        within = isinstance(generation, int) and since <= generation < team.generation
        if within and isinstance(cause, Mapping) and cause.get("node") in left:
            left[cause["node"]] = str(cause.get("message") or left[cause["node"]])
    return left


def describe_cost(teams: Sequence[TeamEvent]) -> str:
    """Return the time that the other nodes waited in regroups, '' if it is not on record."""
    waited = [team.waited for team in teams if team.waited is not None]
    return f"the others waited {short_time(sum(waited))}" if waited else ""


def _groups(
    launch: StartEvent, teams: Iterable[TeamEvent]
) -> Iterator[tuple[int, Sequence[str], Mapping[str, str]]]:
    """Yield step, nodes and reasons of those that left, for each group of a launch."""
    yield launch.step, launch.present, {}
    for team in teams:
        yield team.step, team.nodes, team.left
