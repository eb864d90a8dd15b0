"""The causes for which one team of nodes is followed by another, or by none for now. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from hearth.supervisor.cause import Cause, Failure
from hearth.supervisor.decisions.voting import Config


def left(node: str, why: str, returns: bool) -> Cause:
    """Return the cause for which the others go on without a node that leaves in order."""
    if returns:
        return Cause(node, None, "away", f"away: {why}")
    return Cause(node, None, "node_lost", f"{node} left: {why}")


def failed(node: str, failure: Failure) -> Cause:
    """Return the cause for which the others go on without a node whose ranks failed."""
    return Cause(node, failure.rank, "rank_failed", failure.message)


def held_up(wanted: Mapping[str, str]) -> Cause:
    """Return the cause for which a run waits of which the owner wants these nodes."""
    (first, why), *others = wanted.items()
    return left(first, "; ".join([why, *(f"{node}: {why}" for node, why in others)]), returns=True)


def change(team: Config, following: Config) -> Cause | None:
    """Return the cause for which a team is followed by another, from their nodes alone."""
    if out := [node for node in team.nodes if node not in following.nodes]:
        return Cause(out[0], None, "rank_failed", f"a rank of {', '.join(out)} ended: see its log")
    if joined := [node for node in following.nodes if node not in team.nodes]:
        return Cause(joined[0], None, "node_back", f"{', '.join(joined)} joined")
    return None
