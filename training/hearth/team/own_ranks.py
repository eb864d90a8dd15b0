"""Orders for a node's own ranks: interrupt, pause, load, leave, or start them again. Pure."""

from __future__ import annotations

from hearth.ranks.orders import Interrupt, Leave, Load, Pause
from hearth.team.forming import Plan, next_team
from hearth.team.messages import TEAMED, WAITING, Report
from hearth.team.notes import Notes, loss
from hearth.team.verdicts import LEAVE_TIMEOUT
from hearth.team.view import Move, RestartRanks, TellRanks, View

SETTLE = 10.0
"""Seconds for which nodes with nothing to lose wait for missing ones before they go on."""

FORM_TIMEOUT = 30.0
"""Seconds after which a member that has not got the order to form the group breaks it."""


def orders(view: View, notes: Notes) -> list[Move]:
    """Return the orders for the ranks of this node, or their new start."""
    own = view.own
    if own.state == "failed":
        assert own.failure
        if own.node in notes.failures:
            return []  # It ends the run in a moment.
        notes.restarts.add(notes.step)
        return [RestartRanks(own.failure.message)]
    if own.state in TEAMED:
        if notes.interrupted < own.generation and (why := _broken_by(view, notes)):
            notes.interrupted = own.generation
            return [TellRanks(Interrupt(own.generation, why))]
        if own.state == "training" and notes.paused < own.generation and _pauses(view, notes):
            notes.paused = own.generation
            return [TellRanks(Pause(own.generation))]
        return []
    if own.state not in WAITING and own.state != "ready":
        return []
    if _leaves(view, notes):
        if notes.told_leave:
            return []
        notes.told_leave = True
        return [TellRanks(Leave(save=own.trained > 0 and notes.over != "finished"))]
    if own.state == "ready":
        choices = _choices(view)
        return [TellRanks(Load(choices))] if choices is not None else []
    if notes.late:
        return [RestartRanks("they did not form the group with the others, twice in a row")]
    if own.trained == 0 and _state_is_lost(view, notes):
        return [RestartRanks("no node that is connected has the state of the run any more")]
    return []


def _leaves(view: View, notes: Notes) -> bool:
    """Return whether the ranks of this node, which wait, are to end."""
    own = view.own
    if notes.stop or notes.over:
        return True
    if not own.leaving or notes.left_at is None:
        return False
    if any(each.report.generation > own.generation for each in view.heard.values()):
        return True
    plan = next_team(view, avoid=notes.avoided(view.now))
    possible = view.proposal or plan is None or isinstance(plan, Plan)
    return not possible or view.now - notes.left_at > LEAVE_TIMEOUT / 2


def _choices(view: View) -> dict[str, object] | None:
    """Return the choices with which ranks load alone, from the node that has trained last."""
    reports = [each.report for each in view.heard.values() if each.report.trained]
    known = [report for report in reports if report.choices is not None]
    newest = max(known, key=lambda report: report.trained, default=None)
    return newest.choices if newest else None


def _state_is_lost(view: View, notes: Notes) -> bool:
    """Return whether no connected node's ranks have the run's state, for long enough."""
    if notes.idle_since is None or view.now - notes.idle_since < SETTLE:
        return False
    return not any(report.trained for report in view.reports.values())


def _broken_by(view: View, notes: Notes) -> str:
    """Return why the group of this node's ranks is over, else ""."""
    own, team = view.own, view.team
    if team is None or team.generation != own.generation:
        return ""
    for node in team.nodes:
        if node == own.node:
            continue
        if node not in view.heard:
            if node in notes.leaving:
                return f"{node} left: {notes.leaving[node]}"
            return loss(view, node).message
        if why := _parted(view, notes, view.heard[node].report):
            return f"{node} {why}"
    return ""


def _parted(view: View, notes: Notes, report: Report) -> str:
    """Return why a connected member is not in this node's group any more, else ""."""
    generation = view.own.generation
    if max(report.generation, report.votes.newest) > generation:
        return "takes part in a newer team"
    if report.generation < generation:
        late = view.now - notes.team_at > FORM_TIMEOUT
        return f"got no order to form the group within {FORM_TIMEOUT:g} s" if late else ""
    if report.state in ("forming", "training", "paused", "ended"):
        return ""
    reason = report.failure.message if report.failure else report.why
    return f"is out of the group: {reason or report.state}"


def _pauses(view: View, notes: Notes) -> bool:
    """Return whether this node's ranks are to have their group pause, for another team.

    The first member does it: a node that has loaded can join, or a member wants to leave.
    """
    own, team = view.own, view.team
    if team is None or team.nodes[0] != own.node or notes.stop or notes.over:
        return False
    members = [view.reports.get(node) for node in team.nodes]
    for report in members:
        together = report and report.generation == own.generation
        if not together or report.state != "training":
            return False
    if any(report and report.leaving for report in members):
        return True
    plan = next_team(view, waiting=team.nodes, avoid=notes.avoided(view.now))
    return isinstance(plan, Plan) and not plan.fresh and {*plan.team} > {*team.nodes}
