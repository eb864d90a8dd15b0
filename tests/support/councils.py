"""Views of a node's council in one situation, from what the node knows."""

from __future__ import annotations

from dataclasses import replace

from hearth.supervisor.decisions.decide import next_moves
from hearth.supervisor.decisions.notes import Notes
from hearth.supervisor.decisions.view import Absence, Heard, Settings, View
from hearth.supervisor.decisions.voting import Config, Votes
from hearth.supervisor.messages import Report

NODES = ("desk", "laptop", "shelf")
CHOICES = {"precision": "fp32"}
TEAM = Config(5, NODES)


def report(node: str, state: str, team: Config | None = TEAM, **facts: object) -> Report:
    """Return a report of a node that is in, or was in, the team, at step 7."""
    known = {"votes": Votes(team, (), counts=team is not None), "connected": NODES}
    known |= {"serves": 40000, "reached": NODES, "joining": NODES}
    if team and state in ("forming", "training", "breaking", "broken", "paused", "ended"):
        known |= {"generation": team.generation, "trained": team.generation, "step": 7}
        known |= {"choices": CHOICES}
    if team and state == "away":
        known |= {"generation": team.generation}
    return Report(node, state, **known | facts)


def view(own: Report, *others: Report, now: float = 100.0, **facts: object) -> View:
    """Return the view of the node of `own`; nodes of which nothing is given broke off just now."""
    names = {own.node, *(each.node for each in others)}
    known = {
        "now": now,
        "began": 0.0,
        "settings": Settings(NODES),
        "own": own,
        "heard": {each.node: Heard(each, now) for each in others},
        "gone": {node: Absence("broke off", now) for node in NODES if node not in names},
        "team": Config(own.generation, NODES) if own.generation else None,
    }
    return View(**known | facts)


def moves(seen: View, notes: Notes | None = None) -> list:
    return next_moves(seen, notes or Notes())


def with_facts(seen: View, node: str, **facts: object) -> View:
    """Return a view in which these facts of a node's report are others."""
    if node == seen.node:
        return replace(seen, own=replace(seen.own, **facts))
    heard = {**seen.heard, node: Heard(replace(seen.heard[node].report, **facts), seen.now)}
    return replace(seen, heard=heard)
