"""The teams of a run that goes on in place: who left, who came back, what it cost. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hearth.base.text import duration


@dataclass(frozen=True)
class Team:
    """A regroup: the nodes that train together from then on.

    Attributes:
        at: Seconds since the run began.
        step: Number of steps before it.
        launch: Index of its launch in `Story.launches`.
        generation: Its number.
        nodes: In order of rank.
        left: By node, why it is no longer in the team.
        joined: Nodes that were not in the team before.
        waited: Seconds that the others took no step; None if not recorded.
    """

    at: float
    step: int
    launch: int
    generation: int
    nodes: tuple[str, ...]
    left: Mapping[str, str]
    joined: tuple[str, ...]
    waited: float | None

    @property
    def changes(self) -> str:
        """The nodes that left, with the reasons, and those that joined."""
        changes = [f"{node} left ({_short(why)})" for node, why in self.left.items()]
        changes += [f"{node} joined" for node in self.joined]
        return ", ".join(changes) or "the same nodes formed a new group"

    @property
    def text(self) -> str:
        """The regroup in one line."""
        took = "" if self.waited is None else f" after {_seconds(self.waited)}"
        return f"after step {self.step}: {self.changes}; {', '.join(self.nodes)} went on{took}"


@dataclass(frozen=True)
class Absence:
    """A time for which the run went on without a node.

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
        left = f"left after step {self.since} ({_short(self.why)})"
        if not self.why:
            left = f"was away from step {self.since + 1} on"
        if self.until is None:
            return left
        return f"{left}, came {'back ' if self.why else ''}after step {self.until}"


class _Launch(Protocol):
    """The fields of a launch that say who was there."""

    @property
    def step(self) -> int: ...

    @property
    def nodes(self) -> Sequence[str]: ...

    @property
    def present(self) -> Sequence[str]: ...


def absences(launches: Sequence[_Launch], teams: Iterable[Team]) -> list[Absence]:
    """Return the times for which the run went on without one of its nodes, in order.

    A node that a launch has no rank of is not missed.
    """
    found: list[Absence] = []
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
                    found.append(Absence(node, reasons.get(node, ""), step))
    return found


def explained(team: Team, since: int, launches: Iterable[Mapping[str, Any]]) -> Team:
    """Return `team` with the supervisors' reasons, which know more than the ranks of the others.

    `since` is the generation of the group before it. `launches` are of a supervisor's record: each
    with the `generation` that ended and its `cause`.
    """
    left = dict(team.left)
    for launch in launches:
        cause, generation = launch.get("cause"), launch.get("generation")
        within = isinstance(generation, int) and since <= generation < team.generation
        if within and isinstance(cause, Mapping) and cause.get("node") in left:
            left[cause["node"]] = str(cause.get("message") or left[cause["node"]])
    return replace(team, left=left)


def describe_cost(teams: Sequence[Team]) -> str:
    """Return the time that the other nodes waited in regroups, '' if it is not on record."""
    waited = [team.waited for team in teams if team.waited is not None]
    return f"the others waited {_seconds(sum(waited))}" if waited else ""


def _groups(
    launch: _Launch, teams: Iterable[Team]
) -> Iterator[tuple[int, Sequence[str], Mapping[str, str]]]:
    """Yield step, nodes and reasons of those that left, for each group of a launch."""
    yield launch.step, launch.present, {}
    for team in teams:
        yield team.step, team.nodes, team.left


def _short(why: str) -> str:
    """Return the first line of a reason, without what a terminal takes as a command."""
    line = why.partition("\n")[0]
    return "".join(c if c.isprintable() else " " for c in line) or "no reason is on record"


def _seconds(seconds: float) -> str:
    """Return a time of which tenths of a second count while it is short."""
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)
