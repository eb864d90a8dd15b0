"""States of a node in one situation, made of the reports that it and the others would send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hearth.supervisor.cause import RanksFailure
from hearth.supervisor.decisions import decide
from hearth.supervisor.decisions.actions import Conclude
from hearth.supervisor.decisions.forming import TeamSettings
from hearth.supervisor.decisions.local_ranks import LocalRanks, Rank
from hearth.supervisor.decisions.state import Disconnection, Heard, Memory, State
from hearth.supervisor.decisions.team_record import TeamRecord
from hearth.supervisor.decisions.voting import Config, Refusal, Votes
from hearth.supervisor.messages import NodeReport, Propose, Reaches

NODES = ("desk", "laptop", "shelf")
CHOICES = {"precision": "fp32"}
TEAM = Config(5, NODES)

_PLACES = {"ready": ("new",), "training": ("in",), "ended": ("over",), "breaking": ("in", "broken")}


class Mind:
    """The memory of one node's decisions, and the end it knows of, between two situations."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.verdict: Conclude | None = None


def report(node: str, state: str, team: Config | None = TEAM, **facts: object) -> NodeReport:
    """Return a report of a node that is in, or was in, the team, at step 7."""
    known = {"votes": Votes(team, (), counts=team is not None), "connected": NODES}
    known |= {"serves": 40000, "reaches": Reaches(NODES, NODES)}
    if team and state in ("forming", "training", "breaking", "broken", "paused", "ended"):
        known |= {"generation": team.generation, "trained": team.generation, "step": 7}
        known |= {"choices": CHOICES}
    if team and state == "away":
        known |= {"generation": team.generation}
    return NodeReport(node, state, **known | facts)


def situation(own: NodeReport, *others: NodeReport, now: float = 100.0, **facts: Any) -> State:
    """Return the state of the node of `own`; nodes that are not given broke off just now."""
    names = {own.node, *(each.node for each in others)}
    heard = {each.node: Heard(each, now) for each in others}
    gone = {node: Disconnection("broke off", now) for node in NODES if node not in names}
    team = facts.pop("team", Config(own.generation, NODES) if own.generation else None)
    ranks = replace(LocalRanks.starting(1), gained=facts.pop("gained", 0))
    if ends := facts.pop("verdict", None):
        facts["verdict"] = Conclude(ends)
    known = {"now": now, "heard": heard, "gone": gone, "teams": TeamRecord(team)} | facts
    settings = known.pop("settings", TeamSettings(NODES))
    return replace(_with_own(State(settings, own.node, ranks), own), **known)


def moves(seen: State, mind: Mind | None = None) -> list:
    """Return the moves of a node in a situation; `mind` remembers them."""
    mind = mind or Mind()
    if seen.verdict and not mind.verdict:
        mind.verdict, mind.memory = seen.verdict, replace(mind.memory, verdict_at=seen.now)
    state, found = decide.decide(replace(seen, memory=mind.memory, verdict=mind.verdict))
    mind.memory, mind.verdict = state.memory, state.verdict
    return found


def answer(seen: State, mind: Mind, proposal: Propose, proposer: str) -> Votes | Refusal:
    """Return the answer of a node to a proposal in a situation; `mind` remembers it."""
    state, found = decide.answer(replace(seen, memory=mind.memory), proposal, proposer)
    mind.memory = state.memory
    return found


def with_facts(seen: State, node: str, **facts: Any) -> State:
    """Return a situation with these facts of a node's report, or its `Reaches`, changed."""
    if ways := {name: facts.pop(name) for name in {"reached", "joining", "unreached"} & {*facts}}:
        facts["reaches"] = replace(seen.reports[node].reaches, **ways)
    if node == seen.node:
        if "generation" in facts:
            team = Config(facts["generation"], seen.team.nodes if seen.team else NODES)
            seen = replace(seen, teams=TeamRecord(team))
        return _with_own(seen, replace(seen.own, **facts))
    heard = {**seen.heard, node: Heard(replace(seen.heard[node].report, **facts), seen.now)}
    return replace(seen, heard=heard)


def _with_own(seen: State, own: NodeReport) -> State:
    """Return a state whose own report is this one, but for what follows from other facts."""
    places = _PLACES.get(own.state, (own.state,))
    inside = own.state not in ("failed", "away")
    failure = own.failure or (RanksFailure(None, "it failed") if own.state == "failed" else None)
    ranks = LocalRanks(
        tuple(Rank(place if inside else "starting", own.trained, own.step) for place in places),
        failure=failure if own.state == "failed" else None,
        choices=own.choices,
        ended=own.ended,
        why=own.why,
        gained=seen.ranks.gained,
        away=own.state == "away",
    )
    owner = own.leaving if own.returns else ""
    return replace(
        seen,
        ranks=ranks,
        votes=own.votes,
        voteless=own.voteless,
        owner=owner,
        owner_reported=owner,
        leaving="" if own.returns else own.leaving,
        serves=own.serves,
        reaches=own.reaches,
        stop=own.stopping,
    )
