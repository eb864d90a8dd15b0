"""Orders for a node's own ranks: interrupt, pause, load, leave, or start them again. Pure."""

from __future__ import annotations

from hearth.ranks.control_protocol import Interrupt, Leave, LoadAlone, Pause
from hearth.supervisor.decisions.actions import Action, RestartRanks, RestRanks, TellRanks
from hearth.supervisor.decisions.forming import TeamPlan, all_meet
from hearth.supervisor.decisions.state import State
from hearth.supervisor.messages import TEAMED, WAITING, NodeReport

SETTLE = 10.0
"""Seconds that nodes with nothing to lose wait for missing ones before they go on."""

FORM_TIMEOUT = 30.0
"""Seconds after which a member that has not got the order to form the group breaks it."""

STEP_PATIENCE = 60.0
"""Seconds that the owner waits for the end of a step; then the others take it again."""

SHUTDOWN_PATIENCE = 20.0
"""Seconds that a machine which shuts down waits for the end of a step: it still has to vote."""

LET_GO = 10.0
"""Seconds that its ranks wait, out of their group, for a team of the others."""

EVALUATION_PATIENCE = 3.0
"""Seconds that it waits for the end of a held-out evaluation, which the others do again."""

HANDOVER = 10.0
"""Seconds that waiting ranks are kept to give the state of the run to others."""

HEARD_OF = 1.0
"""Seconds until others have heard that a node leaves, if they are to keep the state for it."""

OWN_END = 5.0
"""Seconds that relaunched ranks get to end by themselves after those of another node.

Each torchrun tells its own error, and only one of them may be the cause.
"""

FREE_WITHIN = 2.0
"""Seconds to exit for ranks that have nothing to save; then they are ended."""


def orders(state: State) -> list[Action]:
    """Return the orders for the ranks of this node, or their new start."""
    own, memory = state.own, state.memory
    if own.state == "away":
        free = not (own.leaving or state.stopping or state.over)
        return [RestartRanks("the owner has let go of the machine")] if free else []
    if own.state == "failed" and own.node in memory.failures:
        return []  # It ends the run in a moment.
    if own.returns and _rests(state):
        return [RestRanks(own.leaving)]
    if own.state == "ended" and (why := _ended_too_soon(state)):
        return [RestartRanks(why)]
    if own.state == "failed":
        assert own.failure
        assert memory.failed_at is not None
        waits = state.now - memory.failed_at < memory.restart_wait
        return [] if waits else [RestartRanks(own.failure.message)]
    if own.state in TEAMED and state.settings.scripted and memory.failures:
        return []  # The run ends in a moment, and the script is asked to save its state.
    if own.state in TEAMED:
        if memory.interrupted < own.generation and (why := _broken_by(state)):
            return [TellRanks(Interrupt(own.generation, why))]
        if own.state == "training" and memory.paused < own.generation and _pauses(state):
            return [TellRanks(Pause(own.generation))]
        return []
    if own.state not in WAITING and own.state != "ready":
        return []
    if _leaves(state):
        return [] if memory.told_leave else [TellRanks(Leave(_saves(state)))]
    if own.state == "ready":
        choices = _choices(state)
        return [TellRanks(LoadAlone(choices))] if choices is not None else []
    if memory.late:
        return [RestartRanks("they did not form the group with the others, twice in a row")]
    if own.trained == 0 and _state_is_lost(state):
        return [RestartRanks("no node that is connected has the state of the run any more")]
    return []


def _saves(state: State) -> bool:
    """Return whether the ranks of this node write a checkpoint before they end."""
    own = state.own
    if own.returns and not state.stopping and _others_have_it(state):
        return False
    return own.trained > 0 and state.over != "finished"


def _ended_too_soon(state: State) -> str:
    """Return which node was lost or paused when these relaunched ranks ended, else ""."""
    if not state.settings.relaunched or state.stopping or state.over:
        return ""
    for node in state.newest.nodes if state.newest else ():
        report = state.reports.get(node)
        if node not in state.memory.ended and (report is None or report.state not in TEAMED):
            return f"{node} did not finish with the others"
    return ""


def _leaves(state: State) -> bool:
    """Return whether the ranks of this node, which wait, are to end."""
    own = state.own
    if state.stopping or state.over:
        return True
    if not own.leaving or state.memory.left_at is None:
        return False
    if own.returns:
        return _gives_way(state)
    if any(each.report.generation > own.generation for each in state.heard.values()):
        return True
    plan = state.plan()
    possible = state.proposal or plan is None or isinstance(plan, TeamPlan)
    return not possible or state.now - (state.memory.waits_at or state.now) > LET_GO


def _rests(state: State) -> bool:
    """Return whether the ranks of this node, which its owner wants, are to be ended at once."""
    own = state.own
    if own.state in TEAMED and own.trained:
        # They were told to break their group off, and have not got out of it.
        late = state.memory.interrupted >= own.generation and state.memory.left_at is not None
        return late and state.now - state.memory.left_at > STEP_PATIENCE + HANDOVER
    if own.state in WAITING and own.trained:
        return state.memory.free_by is not None and state.now > state.memory.free_by
    return True


def _gives_way(state: State) -> bool:
    """Return whether the ranks of this node, which wait and which its owner wants, are to end.

    They do so at once, unless the others, which have loaded, still have to get the state from them.
    """
    own = state.own
    if not own.trained or _others_have_it(state):
        return True
    waited = state.now - (state.memory.waits_at or state.now)
    if any(_stays(state, each.report) for each in state.heard.values()):
        return waited > HEARD_OF
    plan = state.plan()
    team = plan.team if isinstance(plan, TeamPlan) else ()
    heirs = [node for node in team if not state.reports[node].returns]
    return not heirs or waited > HANDOVER


def _others_have_it(state: State) -> bool:
    """Return whether other ranks, which stay, have the state of the run that this node's have.

    They know that this node leaves: of nodes that leave at once the last one to say so keeps it.
    """
    return any(
        _stays(state, each.report) and state.node in each.report.parting
        for each in state.heard.values()
    )


def _stays(state: State, report: NodeReport) -> bool:
    """Return whether a node has the state that this one has, and does not say that it leaves."""
    has = report.trained >= state.own.trained and report.state in TEAMED | WAITING
    return has and not report.leaving


def _choices(state: State) -> dict[str, object] | None:
    """Return the choices for ranks that load alone, from the node that has trained last."""
    reports = [each.report for each in state.heard.values() if each.report.trained]
    known = [report for report in reports if report.choices is not None]
    newest = max(known, key=lambda report: report.trained, default=None)
    return newest.choices if newest else None


def _state_is_lost(state: State) -> bool:
    """Return whether no connected node's ranks have the run's state, for long enough."""
    if state.memory.idle_since is None or state.now - state.memory.idle_since < SETTLE:
        return False
    return not any(report.trained for report in state.reports.values())


def _broken_by(state: State) -> str:
    """Return why the group of this node's ranks is over, else ""."""
    own, team = state.own, state.team
    if team is None or team.generation != own.generation:
        return ""
    if own.leaving and own.state != "breaking" and state.memory.left_at is not None:
        patience = STEP_PATIENCE if own.returns else SHUTDOWN_PATIENCE
        if state.now - state.memory.left_at > (
            EVALUATION_PATIENCE if state.evaluates else patience
        ):
            who = f"its owner wants {own.node}" if own.returns else f"{own.node} leaves"
            return f"{who}: {own.leaving}"
    for node in team.nodes:
        if node == own.node:
            continue
        if node not in state.reports:
            if node in state.memory.leaving:
                return f"{node} left: {state.memory.leaving[node]}"
            return state.loss(node).message
        heard = state.heard[node]
        soon = state.settings.relaunched and state.now - heard.at < OWN_END
        if soon and heard.report.state in ("breaking", "broken"):
            continue
        if why := _parted(state, heard.report):
            return f"{node} {why}"
    return ""


def _parted(state: State, report: NodeReport) -> str:
    """Return why a connected member is not in this node's group any more, else ""."""
    generation = state.own.generation
    if max(report.generation, report.votes.newest) > generation:
        return "takes part in a newer team"
    if report.generation < generation:
        late = state.now - state.memory.team_at > FORM_TIMEOUT
        return f"got no order to form the group within {FORM_TIMEOUT:g} s" if late else ""
    if report.state in ("forming", "training", "paused", "ended"):
        return ""
    if report.state == "away":
        return f"is away: {report.leaving}"
    reason = report.failure.message if report.failure else report.why
    return f"is out of the group: {reason or report.state}"


def _pauses(state: State) -> bool:
    """Return whether this node's ranks are to have their group pause, for another team.

    A node that has loaded can join, or a member wants to leave. The first member does it, as the
    order passes from rank to rank; of relaunched ranks every member, as its own ones only hear it.
    """
    own, team = state.own, state.team
    if team is None or state.stopping or state.over:
        return False
    if team.nodes[0] != own.node and not state.settings.relaunched:
        return False
    members = [state.reports.get(node) for node in team.nodes]
    for report in members:
        together = report and report.generation == own.generation
        if not together or report.state not in ("training", "paused"):
            return False
    if state.settings.relaunched and any(report.state == "paused" for report in members if report):
        return True  # they do not hear it of each other
    if any(report and report.leaving for report in members):
        return True
    plan = state.plan(waiting=team.nodes)
    wider = isinstance(plan, TeamPlan) and not plan.fresh and {*plan.team} > {*team.nodes}
    return wider and all_meet(state.reports, plan.team)
