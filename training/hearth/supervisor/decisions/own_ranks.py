"""Orders for a node's own ranks: interrupt, pause, load, leave, or start them again. Pure."""

from __future__ import annotations

from hearth.ranks.orders import Interrupt, Leave, Load, Pause
from hearth.supervisor.decisions.forming import Plan, next_team
from hearth.supervisor.decisions.notes import Notes, loss
from hearth.supervisor.decisions.reach import all_meet
from hearth.supervisor.decisions.view import Move, RestartRanks, RestRanks, TellRanks, View
from hearth.supervisor.messages import TEAMED, WAITING, Report

SETTLE = 10.0
"""Seconds for which nodes with nothing to lose wait for missing ones before they go on."""

FORM_TIMEOUT = 30.0
"""Seconds after which a member that has not got the order to form the group breaks it."""

STEP_PATIENCE = 60.0
"""Seconds that the house waits for the end of a step; then the others take it again."""

SHUTDOWN_PATIENCE = 20.0
"""Seconds that a machine which shuts down waits for the end of a step: it still has to vote."""

LET_GO = 10.0
"""Seconds that its ranks wait, out of their group, for a team of the others."""

EVALUATION_PATIENCE = 3.0
"""Seconds that it waits for the end of a held-out evaluation, which the others do again."""

HANDOVER = 10.0
"""Seconds for which ranks that wait may be needed to give the state of the run to others."""

HEARD_OF = 1.0
"""Seconds until others have heard that a node leaves, if they are to keep the state for it."""

OWN_END = 5.0
"""Seconds in which relaunched ranks end by themselves after those of another node.

Each torchrun tells its own error, and only one of them may be the cause.
"""

FREE_WITHIN = 2.0
"""Seconds in which ranks end that have nothing to save; then they are ended."""


def orders(view: View, notes: Notes) -> list[Move]:
    """Return the orders for the ranks of this node, or their new start."""
    own = view.own
    if own.state == "away":
        free = not (own.leaving or notes.stop or notes.over)
        return [RestartRanks("the house has let go of the machine")] if free else []
    if own.state == "failed" and own.node in notes.failures:
        return []  # It ends the run in a moment.
    if own.returns and _rests(view, notes):
        return [RestRanks()]
    if own.state == "ended" and (why := _ended_too_soon(view, notes)):
        return [RestartRanks(why)]
    if own.state == "failed":
        assert own.failure
        assert notes.failed_at is not None
        if view.now - notes.failed_at < notes.restart_wait:
            return []
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
        save = own.trained > 0 and notes.over != "finished"
        if own.returns and not notes.stop and _others_have_it(view):
            save = False
        notes.free_by = None if save else view.now + FREE_WITHIN
        return [TellRanks(Leave(save))]
    if own.state == "ready":
        choices = _choices(view)
        return [TellRanks(Load(choices))] if choices is not None else []
    if notes.late:
        return [RestartRanks("they did not form the group with the others, twice in a row")]
    if own.trained == 0 and _state_is_lost(view, notes):
        return [RestartRanks("no node that is connected has the state of the run any more")]
    return []


def _ended_too_soon(view: View, notes: Notes) -> str:
    """Return which node was lost or paused when these relaunched ranks ended, else ""."""
    if not view.settings.relaunched or notes.stop or notes.over:
        return ""
    for node in notes.members:
        report = view.reports.get(node)
        if node not in notes.ended and (report is None or report.state not in TEAMED):
            return f"{node} did not come to the end with the others"
    return ""


def _leaves(view: View, notes: Notes) -> bool:
    """Return whether the ranks of this node, which wait, are to end."""
    own = view.own
    if notes.stop or notes.over:
        return True
    if not own.leaving or notes.left_at is None:
        return False
    if own.returns:
        return _gives_way(view, notes)
    if any(each.report.generation > own.generation for each in view.heard.values()):
        return True
    plan = next_team(view, avoid=notes.avoided(view.now))
    possible = view.proposal or plan is None or isinstance(plan, Plan)
    return not possible or view.now - (notes.waits_at or view.now) > LET_GO


def _rests(view: View, notes: Notes) -> bool:
    """Return whether the ranks of this node, which the house wants, are to be ended at once."""
    own = view.own
    if own.state in TEAMED and own.trained:
        # They were told to break their group off, and have not got out of it.
        late = notes.interrupted >= own.generation and notes.left_at is not None
        return late and view.now - notes.left_at > STEP_PATIENCE + HANDOVER
    if own.state in WAITING and own.trained:
        return notes.free_by is not None and view.now > notes.free_by
    return True


def _gives_way(view: View, notes: Notes) -> bool:
    """Return whether the ranks of this node, which wait and which the house wants, are to end.

    They do so at once, unless the others, which have loaded, still have to get the state from them.
    """
    own = view.own
    if not own.trained or _others_have_it(view):
        return True
    waited = view.now - (notes.waits_at or view.now)
    if any(_stays(view, each.report) for each in view.heard.values()):
        return waited > HEARD_OF
    plan = next_team(view, avoid=notes.avoided(view.now))
    team = plan.team if isinstance(plan, Plan) else ()
    heirs = [node for node in team if not view.reports[node].returns]
    return not heirs or waited > HANDOVER


def _others_have_it(view: View) -> bool:
    """Return whether other ranks, which stay, have the state of the run that this node's have.

    They know that this node leaves: of nodes that leave at once the last one to say so keeps it.
    """
    return any(
        _stays(view, each.report) and view.node in each.report.parting
        for each in view.heard.values()
    )


def _stays(view: View, report: Report) -> bool:
    """Return whether a node has the state that this one has, and does not say that it leaves."""
    has = report.trained >= view.own.trained and report.state in TEAMED | WAITING
    return has and not report.leaving


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
    if own.leaving and own.state != "breaking" and notes.left_at is not None:
        patience = STEP_PATIENCE if own.returns else SHUTDOWN_PATIENCE
        if view.now - notes.left_at > (EVALUATION_PATIENCE if view.evaluates else patience):
            who = f"the house wants {own.node}" if own.returns else f"{own.node} leaves"
            return f"{who}: {own.leaving}"
    for node in team.nodes:
        if node == own.node:
            continue
        if node not in view.heard:
            if node in notes.leaving:
                return f"{node} left: {notes.leaving[node]}"
            return loss(view, node).message
        heard = view.heard[node]
        soon = view.settings.relaunched and view.now - heard.at < OWN_END
        if soon and heard.report.state in ("breaking", "broken"):
            continue
        if why := _parted(view, notes, heard.report):
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
    if report.state == "away":
        return f"is away: {report.leaving}"
    reason = report.failure.message if report.failure else report.why
    return f"is out of the group: {reason or report.state}"


def _pauses(view: View, notes: Notes) -> bool:
    """Return whether this node's ranks are to have their group pause, for another team.

    A node that has loaded can join, or a member wants to leave. The first member does it, as the
    order passes from rank to rank; of relaunched ranks every member, as its own ones only hear it.
    """
    own, team = view.own, view.team
    if team is None or notes.stop or notes.over:
        return False
    if team.nodes[0] != own.node and not view.settings.relaunched:
        return False
    members = [view.reports.get(node) for node in team.nodes]
    for report in members:
        together = report and report.generation == own.generation
        if not together or report.state not in ("training", "paused"):
            return False
    if view.settings.relaunched and any(report.state == "paused" for report in members if report):
        return True  # they do not hear it of each other
    if any(report and report.leaving for report in members):
        return True
    plan = next_team(view, waiting=team.nodes, avoid=notes.avoided(view.now))
    wider = isinstance(plan, Plan) and not plan.fresh and {*plan.team} > {*team.nodes}
    return wider and all_meet(view.reports, plan.team)
