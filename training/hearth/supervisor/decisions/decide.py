"""The decisions of a node of a run: what its state asks it to do. Pure.

Every node decides for itself, and none commands another: it interrupts its own ranks when
their group is over, has them load or leave, and, if it is the first of the next team,
proposes that team to all its nodes, which vote (`voting`).
"""

from __future__ import annotations

from dataclasses import replace

from hearth.ranks.control_protocol import Interrupt, Leave, Pause
from hearth.supervisor.decisions import actions
from hearth.supervisor.decisions.forming import (
    TeamPlan,
    gaps,
    members_of,
    next_team,
    returns_suffice,
)
from hearth.supervisor.decisions.observe import observe, parted
from hearth.supervisor.decisions.own_ranks import FREE_WITHIN, SETTLE, orders
from hearth.supervisor.decisions.state import Promise, State
from hearth.supervisor.decisions.verdicts import conclusion, end_moves, waited_too_long
from hearth.supervisor.decisions.voting import (
    PROPOSAL_LIFETIME,
    Refusal,
    Votes,
    needs_no_disk,
    promise,
)
from hearth.supervisor.messages import TEAMED, WAITING, Propose

BRIEF = 1.0
"""Seconds after the loss of a team before missing nodes are reported."""

BACK_OFF = 0.3
"""Seconds that a proposer waits after a refusal, more with each one and with a higher rank."""


def decide(state: State) -> tuple[State, list[actions.Action]]:
    """Return the moves of this node, in order, and its state once it has made them.

    After `Conclude` or `Depart` there are no more.
    """
    state = observe(state)
    if end := conclusion(state):
        moves = end_moves(state, end)
        return _remember(state, moves), moves
    moves = orders(state)
    if (found := gaps(state.reports)) != state.memory.said_gaps:
        moves.append(actions.SayUnreached(found))
    state = _remember(state, moves)
    if state.proposal:
        found = _follow(state)
    else:
        state, found = _seek_team(state)
    if any(isinstance(move, actions.Conclude) for move in found):
        moves, found = [], end_moves(state, found[0])
    return _remember(state, found), moves + found


def _seek_team(state: State) -> tuple[State, list[actions.Action]]:
    """Return moves: the proposal of a team, news of the missing nodes, or the end of the wait."""
    plan, memory = _plan(state), state.memory
    missing, why = _missing(state, plan)
    wanted = _held_up(state, missing)
    if wanted or state.queued.keys() & {*missing}:
        state = state.remember(held_until=state.now)
    if late := waited_too_long(state, missing, why):
        return state, [late]
    if not missing:
        missing, why = _slow(state)
    wanted = wanted if missing else {}
    missing = tuple(each for each in state.settings.nodes if each in missing or each in wanted)
    brief = memory.team and state.now - (memory.idle_since or 0.0) < BRIEF
    moves: list[actions.Action] = []
    if (missing, wanted) != (memory.said, memory.said_wanted) and not (missing and brief):
        moves.append(actions.SayWaiting(missing, why, wanted))
    if isinstance(plan, TeamPlan) and _proposes(state, plan):
        moves.append(actions.ProposeTeam(plan.attempt, plan.fresh))
    return state, moves


def _remember(state: State, moves: list[actions.Action]) -> State:
    """Return the state of a node that makes these moves."""
    for move in moves:
        state = _made(state, move)
    return state


def _made(state: State, move: actions.Action) -> State:
    now = state.now
    match move:
        case actions.TellRanks(Interrupt(generation)):
            return state.remember(interrupted=generation)
        case actions.TellRanks(Pause(generation)):
            return state.remember(paused=generation)
        case actions.TellRanks(Leave(save)):
            return state.remember(told_leave=True, free_by=None if save else now + FREE_WITHIN)
        case actions.SendVerdict(outcome):
            return replace(state.remember(verdict_at=now), verdict=actions.Conclude(outcome))
        case actions.SayWaiting(missing, _, wanted):
            return state.remember(said=missing, said_wanted=wanted)
        case actions.SayUnreached(found):
            return state.remember(said_gaps=found)
        case actions.ProposeTeam(attempt):
            made = Promise(state.node, attempt.config.generation, now)
            return state.remember(promise=made)
        case actions.StartTeam():
            return replace(state.remember(silent=frozenset()), proposal=None)
        case actions.DropProposal(_, silent):
            return _after_refusal(state, silent)
    return state


def _after_refusal(state: State, silent: tuple[str, ...]) -> State:
    """Return the state of a proposer after a failed proposal: it waits a little.

    It leaves out the voters that did not answer again, as their disks are slow, if others can go
    on. They may answer at any time, so a node that needs their votes goes on asking.
    """
    turn = [*state.reports].index(state.node)
    refusals = state.memory.refusals + 1
    state = state.remember(refusals=refusals)
    pause = BACK_OFF * (min(refusals, 6) * state.jitter + turn)
    state = replace(state.remember(retry_at=state.now + pause), proposal=None)
    if not silent:
        return state
    memory = state.memory
    again = {node for node in silent if node in memory.silent or node in memory.strikes}
    avoid = memory.avoided(state.now) | again
    if again and isinstance(next_team(state.settings, state.reports, avoid=avoid), TeamPlan):
        for node in sorted(again):
            memory = memory.leaving_out(node, state.now)
    return replace(state, memory=replace(memory, silent=frozenset(silent)))


def answer(state: State, proposal: Propose, proposer: str) -> tuple[State, Votes | Refusal]:
    """Return the votes to save before this node says yes to a proposal, or why it says no."""
    if objection := _objection(state, proposal, proposer):
        return state, Refusal(objection)
    votes = promise(state.votes, proposal.attempt, state.node, state.settings.nodes)
    if isinstance(votes, Refusal):
        return state, votes
    made = Promise(proposer, proposal.attempt.config.generation, state.now)
    return state.remember(promise=made), votes


def _objection(state: State, proposal: Propose, proposer: str) -> str:
    """Return why this node cannot be part of a proposed team now, else ""."""
    own, attempt = state.own, proposal.attempt
    if own.voteless and not needs_no_disk(state.votes, attempt, own.node, state.settings.nodes):
        return own.voteless
    if proposer not in state.heard:
        return f"{own.node} is not connected to {proposer}"
    if strangers := [node for node in attempt.voters if node not in state.reports]:
        return f"{own.node} is not connected to {', '.join(strangers)}"
    if state.stopping or state.over:
        return f"the run ends on {own.node}"
    held = _promised(state)
    if held and held.proposer != proposer:
        return f"{own.node} has just promised {held.proposer} another team"
    if state.memory.told_leave and own.node not in attempt.leaving:
        return f"the ranks of {own.node} end"
    if own.node in attempt.leaving:
        return f"the ranks of {own.node} are in a group" if own.state in TEAMED else ""
    if own.state in ({"ready"} if proposal.fresh else WAITING):
        return ""
    return f"the ranks of {own.node} do not wait for a group: {own.state}"


def to_prove(state: State) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the nodes whose reach this one is to prove, and those that join.

    Those that it did not reach are among them until it does.
    """
    reports, members = state.reports, members_of(state.reports)
    begun = any(each.trained and each.state in TEAMED | WAITING for each in reports.values())
    ready = WAITING if begun else WAITING | {"ready"}
    joining = tuple(
        node for node, each in reports.items() if each.state in ready and node not in members
    )
    able = {node for node, each in reports.items() if each.state in TEAMED | ready}
    wanted = able if joining and state.node in able else set()
    wanted |= {*state.reaches.unreached}
    nodes = [node for node in reports if node in wanted and node != state.node]
    return tuple(node for node in nodes if reports[node].serves), joining


def _promised(state: State) -> Promise | None:
    """Return the promise of this node that its proposer may still make a team of."""
    held = state.memory.promise
    if held is None or state.now - held.at > PROPOSAL_LIFETIME:
        return None
    if state.own.generation >= held.generation:
        return None
    if held.proposer == state.node:
        return held if state.proposal else None
    return held if held.proposer in state.heard else None


def _follow(state: State) -> list[actions.Action]:
    """Return the next moves for the own proposal in flight: drop it, start its team, or wait."""
    proposal = state.proposal
    assert proposal
    voters = proposal.attempt.voters
    silent = tuple(node for node in voters if node not in proposal.yes)
    if cut := [node for node in voters if node not in state.reports]:
        return [actions.DropProposal(f"the connection to {', '.join(cut)} broke")]
    if state.stopping or state.over:
        return [actions.DropProposal("the run ends")]
    if state.now - proposal.since >= PROPOSAL_LIFETIME:
        why = f"{', '.join(silent)} did not answer within {PROPOSAL_LIFETIME:g} s"
        return [actions.DropProposal(why, silent)]
    if proposal.refused:
        node, reason = next(iter(proposal.refused.items()))
        return [actions.DropProposal(f"{node} refused: {reason}")]
    if silent:
        return []
    left = parted(state, proposal.attempt.config.nodes)
    return [actions.StartTeam(proposal.attempt.config, proposal.fresh, left)]


def _plan(state: State) -> TeamPlan | Refusal | None:
    """Return the next team, the reason why there is none, or None if it is not to be formed now."""
    if state.stopping or state.over:
        return None
    newest, idle_since = state.newest, state.memory.idle_since
    waited = state.now - idle_since if idle_since is not None else 0.0
    # The first team waits for all; later, ranks that hang at their start hold up no other for ever.
    plan = state.plan(impatient=newest is not None and waited > state.settings.ready_timeout)
    if not isinstance(plan, TeamPlan):
        return plan
    trained = max(state.reports[node].trained for node in plan.team)
    # A missing node may hold a newer state than any here; when all load anew, many come late.
    older = newest is not None and trained < newest.generation
    return None if state.missing and older and waited < SETTLE else plan


def _proposes(state: State, plan: TeamPlan) -> bool:
    """Return whether this node is to propose the team now: it is the first one of it."""
    ready = state.now >= state.memory.retry_at and _promised(state) is None
    able = not state.memory.late and not state.memory.told_leave
    return ready and plan.team[0] == state.node and able


def _held_up(state: State, missing: tuple[str, ...]) -> dict[str, str]:
    """Return the nodes that its owner wants, with reasons, if nothing else holds up the run.

    So it is if the run lacks them only, if it would go on without the others that it lacks once
    they come back, or if no node that is here lends.
    """
    wanted = state.wanted
    if len(wanted) == len(state.reports):
        return wanted
    if not missing or not wanted:
        return {}
    lacks = {node: wanted[node] for node in missing if node in wanted}
    if len(lacks) == len(missing):
        return lacks
    avoid = state.memory.avoided(state.now)
    return wanted if returns_suffice(state.settings, state.reports, avoid) else {}


def _missing(state: State, plan: TeamPlan | Refusal | None) -> tuple[tuple[str, ...], str]:
    """Return the nodes that this node waits for, and why it does not go on without them.

    It waits for itself while others train and its disk keeps it out of their team.
    """
    if isinstance(plan, TeamPlan) or state.stopping or state.over:
        return (), ""
    if state.memory.idle_since is None:
        waits = state.voteless and state.own.state not in TEAMED
        return ((state.node,), state.voteless) if waits else ((), "")
    if isinstance(plan, Refusal):
        if found := gaps(state.reports):
            return state.missing or plan.missing, "; ".join(found)
        voteless = tuple(node for node, report in state.reports.items() if report.voteless)
        return state.missing or plan.missing or voteless, plan.reason
    return state.missing, ""


def _slow(state: State) -> tuple[tuple[str, ...], str]:
    """Return the connected nodes whose ranks are not ready long after others', and that reason.

    To load may take long, so that this ends nothing: it is for a person to see.
    """
    idle_since = state.memory.idle_since
    waited = state.now - idle_since if idle_since is not None else 0.0
    if state.newest or waited <= state.settings.ready_timeout or state.stopping or state.over:
        return (), ""
    slow = tuple(
        node for node, report in state.reports.items() if report.state not in ("ready", "away")
    )
    if len(slow) == len(state.reports):
        return (), ""
    return slow, "the ranks there have not loaded yet" if slow else ""
