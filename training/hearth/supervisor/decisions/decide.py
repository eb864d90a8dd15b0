"""The decisions of a node of a run: what its view of the others asks it to do. Pure.

Every node decides for itself, and none commands another: it interrupts its own ranks when
their group is over, has them load or leave, and, if it is the first of the next team,
proposes that team to all its nodes, which vote (`voting`). The caller passes the time, calls
`next_moves` after each event and several times a second, and executes the moves in their order.
"""

from __future__ import annotations

from hearth.supervisor.decisions.forming import Plan, next_team, returns_suffice
from hearth.supervisor.decisions.notes import Notes, Promise
from hearth.supervisor.decisions.own_ranks import SETTLE, orders
from hearth.supervisor.decisions.reach import gaps
from hearth.supervisor.decisions.verdicts import conclusion, waited_too_long
from hearth.supervisor.decisions.view import (
    DropProposal,
    Move,
    ProposeTeam,
    SayUnreached,
    SayWaiting,
    StartTeam,
    View,
)
from hearth.supervisor.decisions.voting import (
    PROPOSAL_LIFETIME,
    Refusal,
    Votes,
    newest_committed,
    promise,
)
from hearth.supervisor.messages import TEAMED, WAITING, Propose

BRIEF = 1.0
"""Seconds after the loss of a team in which nobody is told that nodes are missing."""

BACK_OFF = 0.3
"""Seconds that a proposer waits after a refusal, more with each one and with a higher rank."""


def next_moves(view: View, notes: Notes) -> list[Move]:
    """Return the moves of this node, in order. After `Conclude` or `Depart` there are no more."""
    notes.observe(view)
    if end := conclusion(view, notes):
        return [end]
    moves = orders(view, notes)
    if (found := gaps(view)) != notes.said_gaps:
        notes.said_gaps = found
        moves.append(SayUnreached(found))
    if view.proposal:
        return moves + _follow(view, notes)
    plan = _plan(view, notes)
    missing, why = _missing(view, notes, plan)
    wanted = _held_up(view, notes, missing)
    if wanted:
        notes.held_until = view.now
    if late := waited_too_long(view, notes, missing, why):
        return [late]
    if not missing:
        missing, why = _slow(view, notes)
    wanted = wanted if missing else {}
    missing = tuple(each for each in view.settings.nodes if each in missing or each in wanted)
    waited = view.now - (notes.idle_since or 0.0)
    brief = notes.team and waited < BRIEF
    news = (missing, wanted) != (notes.said, notes.said_wanted)
    if news and not (missing and brief):
        notes.said, notes.said_wanted = missing, wanted
        moves.append(SayWaiting(missing, why, wanted))
    if isinstance(plan, Plan) and _proposes(view, notes, plan):
        notes.promise = Promise(view.node, plan.attempt.config.generation, view.now)
        moves.append(ProposeTeam(plan.attempt, plan.fresh))
    return moves


def answer(view: View, notes: Notes, proposal: Propose, proposer: str) -> Votes | Refusal:
    """Return the votes to save before this node says yes to a proposal, or why it says no."""
    if objection := _objection(view, notes, proposal, proposer):
        return Refusal(objection)
    votes = promise(view.own.votes, proposal.attempt, view.node, view.settings.nodes)
    if not isinstance(votes, Refusal):
        generation = proposal.attempt.config.generation
        notes.promise = Promise(proposer, generation, view.now)
    return votes


def _objection(view: View, notes: Notes, proposal: Propose, proposer: str) -> str:
    """Return why this node cannot be part of a proposed team now, else ""."""
    own, attempt = view.own, proposal.attempt
    if own.voteless:
        return own.voteless
    if proposer not in view.heard:
        return f"{own.node} is not connected to {proposer}"
    if strangers := [node for node in attempt.voters if node not in view.reports]:
        return f"{own.node} is not connected to {', '.join(strangers)}"
    if notes.stop or notes.over:
        return f"the run ends on {own.node}"
    held = _promised(view, notes)
    if held and held.proposer != proposer:
        return f"{own.node} has just promised {held.proposer} another team"
    if notes.told_leave and own.node not in attempt.leaving:
        return f"the ranks of {own.node} end"
    if own.node in attempt.leaving:
        return f"the ranks of {own.node} are in a group" if own.state in TEAMED else ""
    if own.state in ({"ready"} if proposal.fresh else WAITING):
        return ""
    return f"the ranks of {own.node} do not wait for a group: {own.state}"


def _promised(view: View, notes: Notes) -> Promise | None:
    """Return the promise of this node that its proposer may still make a team of."""
    held = notes.promise
    if held is None or view.now - held.at > PROPOSAL_LIFETIME:
        return None
    if view.own.generation >= held.generation:
        return None
    if held.proposer == view.node:
        return held if view.proposal else None
    return held if held.proposer in view.heard else None


def _follow(view: View, notes: Notes) -> list[Move]:
    """Return the next moves for the own proposal in flight: drop it, start its team, or wait."""
    proposal = view.proposal
    assert proposal
    voters = proposal.attempt.voters
    silent = [node for node in voters if node not in proposal.yes]
    cut = [node for node in voters if node not in view.reports]
    if cut:
        why = f"the connection to {', '.join(cut)} broke"
    elif notes.stop or notes.over:
        why = "the run ends"
    elif view.now - proposal.since >= PROPOSAL_LIFETIME:
        why = f"{', '.join(silent)} did not answer within {PROPOSAL_LIFETIME:g} s"
        _note_silence(view, notes, silent)
    elif proposal.refused:
        node, reason = next(iter(proposal.refused.items()))
        why = f"{node} refused: {reason}"
    elif not silent:
        notes.silent = frozenset()
        return [StartTeam(proposal.attempt.config, proposal.fresh)]
    else:
        return []
    turn = [*view.reports].index(view.node)
    notes.refusals += 1
    notes.retry_at = view.now + BACK_OFF * (min(notes.refusals, 6) * view.jitter + turn)
    return [DropProposal(why)]


def _note_silence(view: View, notes: Notes, silent: list[str]) -> None:
    """Leave out the voters that did not answer again, as their disks are slow, if others can go on.

    They may answer at any time, so that nobody who needs their votes ceases to ask.
    """
    again = {node for node in silent if node in notes.silent or node in notes.strikes}
    notes.silent = frozenset(silent)
    if again and isinstance(next_team(view, avoid=notes.avoided(view.now) | again), Plan):
        for node in again:
            notes.leave_out(node, view.now)


def _plan(view: View, notes: Notes) -> Plan | Refusal | None:
    """Return the next team, the reason why there is none, or None if it is not to be formed now."""
    if notes.stop or notes.over:
        return None
    newest = newest_committed(report.votes for report in view.reports.values())
    waited = view.now - notes.idle_since if notes.idle_since is not None else 0.0
    # The first team waits for all; later, ranks that hang at their start hold up nobody for ever.
    impatient = newest is not None and waited > view.settings.ready_timeout
    plan = next_team(view, avoid=notes.avoided(view.now), impatient=impatient)
    if not isinstance(plan, Plan):
        return plan
    trained = max(view.reports[node].trained for node in plan.team)
    # A missing node may hold a newer state than any here; when all load anew, many come late.
    older = newest is not None and trained < newest.generation
    return None if view.missing and older and waited < SETTLE else plan


def _proposes(view: View, notes: Notes, plan: Plan) -> bool:
    """Return whether this node is to propose the team now: it is the first one of it."""
    ready = view.now >= notes.retry_at and _promised(view, notes) is None
    able = not notes.late and not notes.told_leave
    return ready and plan.team[0] == view.node and able


def _held_up(view: View, notes: Notes, missing: tuple[str, ...]) -> dict[str, str]:
    """Return the nodes that the house wants, with reasons, if nothing else holds up the run.

    So it is if the run lacks them only, if it would go on without the others that it lacks once
    they come back, or if no node that is here lends.
    """
    wanted = view.wanted
    if len(wanted) == len(view.reports):
        return wanted
    if not missing or not wanted:
        return {}
    lacks = {node: wanted[node] for node in missing if node in wanted}
    if len(lacks) == len(missing):
        return lacks
    return wanted if returns_suffice(view, notes.avoided(view.now)) else {}


def _missing(view: View, notes: Notes, plan: Plan | Refusal | None) -> tuple[tuple[str, ...], str]:
    """Return the nodes that this node waits for, and why it does not go on without them."""
    if notes.idle_since is None or isinstance(plan, Plan) or notes.stop or notes.over:
        return (), ""
    if isinstance(plan, Refusal):
        if found := gaps(view):
            return view.missing or plan.missing, "; ".join(found)
        voteless = tuple(node for node, report in view.reports.items() if report.voteless)
        return view.missing or plan.missing or voteless, plan.reason
    return view.missing, ""


def _slow(view: View, notes: Notes) -> tuple[tuple[str, ...], str]:
    """Return the connected nodes whose ranks are not ready long after others', and that reason.

    To load may take long, so that this ends nothing: it is for a person to see.
    """
    first = newest_committed(report.votes for report in view.reports.values()) is None
    waited = view.now - notes.idle_since if notes.idle_since is not None else 0.0
    if not first or waited <= view.settings.ready_timeout or notes.stop or notes.over:
        return (), ""
    slow = tuple(
        node for node, report in view.reports.items() if report.state not in ("ready", "away")
    )
    if len(slow) == len(view.reports):
        return (), ""
    return slow, "the ranks there have not loaded yet" if slow else ""
