"""Observations: a node's memory takes note of new facts in its state. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hearth.supervisor.cause import Cause
from hearth.supervisor.decisions.state import Memory, State
from hearth.supervisor.decisions.verdicts import is_retried, led_somewhere
from hearth.supervisor.messages import TEAMED, WAITING, NodeReport


def observe(state: State) -> State:
    """Return the state with its observations in its memory."""
    state = _observe_nodes(state)
    state = _observe_own(state)
    state = state.remember(lost=_loss(state) or state.memory.lost)
    state = _judge_break(state)
    memory = state.memory
    if any(report.state in TEAMED for report in state.reports.values()):
        return state.remember(idle_since=None)
    if memory.idle_since is None:
        return state.remember(idle_since=state.now if memory.team else state.began)
    return state


def _observe_nodes(state: State) -> State:
    """Note who leaves, whose ranks have ended, and whose failed, of all that are connected."""
    memory = state.memory
    ended, leaving, failures = {**memory.ended}, {**memory.leaving}, {**memory.failures}
    for node, report in state.reports.items():
        if report.leaving:
            leaving[node] = report.leaving
        else:
            leaving.pop(node, None)
            if report.ended:
                ended.setdefault(node, report.ended)
            elif state.settings.relaunched:
                ended.pop(node, None)
        failure = report.failure if report.state == "failed" else None
        if failure is None or is_retried(state, node, failure):
            failures.pop(node, None)
        elif not fails_apart(state, node):
            failures.setdefault(node, (failure, state.now))
    return state.remember(ended=ended, leaving=leaving, failures=failures)


def _observe_own(state: State) -> State:
    """Note since when this node's ranks fail, wait, train, or are to leave."""
    own, memory, now = state.own, state.memory, state.now

    def since(at: float | None, holds: bool) -> float | None:
        return None if not holds else now if at is None else at

    again = own.returns != memory.returns
    memory = replace(
        memory,
        left_at=since(None if again else memory.left_at, bool(own.leaving)),
        returns=own.returns if own.leaving else memory.returns,
        waits_at=since(memory.waits_at, own.state in WAITING),
    )
    if own.state != "failed":
        memory = replace(memory, failed_at=None)
    elif memory.failed_at is None and own.failure:
        trained = 0.0 if memory.trains_since is None else now - memory.trains_since
        restarts = 1 if led_somewhere(state, own.failure, trained) else memory.restarts + 1
        memory = replace(memory, failed_at=now, restarts=restarts)
    if own.state in ("starting", "away"):
        memory = replace(memory, told_leave=False, free_by=None, late=False, trains_since=None)
    if own.state == "training":
        trains_since = since(memory.trains_since, True)
        strikes = _forgiven(state)
        memory = replace(memory, trains_since=trains_since, failed_forms=0, strikes=strikes)
    if state.team and state.team.generation != memory.team:
        memory = replace(memory, team=state.team.generation, team_at=now, refusals=0)
    return replace(state, memory=memory)


def _forgiven(state: State) -> dict[str, int]:
    """Return the strikes of nodes without those of the ones that train with this one."""
    team = state.team.nodes if state.team else ()
    trains = {node for node in team if _state_of(state, node) == "training"}
    return {node: count for node, count in state.memory.strikes.items() if node not in trains}


def _state_of(state: State, node: str) -> str:
    report = state.reports.get(node)
    return report.state if report else ""


def _loss(state: State) -> Cause | None:
    """Return the loss of the first member of this node's team that is gone, if any."""
    memory = state.memory
    for node in state.team.nodes if state.team else ():
        absence = state.gone.get(node)
        expected = node in memory.ended or node in memory.leaving
        if absence and absence.since >= memory.team_at and not expected:
            return state.loss(node)
    return None


def _judge_break(state: State) -> State:
    """Find out, once all its nodes wait, whether anything explains why a group broke.

    If not, count it, and avoid the nodes that did not form the group with the others.
    """
    own, team, reports = state.own, state.team, state.reports
    if team and (own.state == "starting" or any(node in state.wanted for node in team.nodes)):
        # The death of the ranks, which were in it, explains it; or the owner, also once it has let
        # go of the machine.
        state = state.remember(judged=team.generation)
    if team is None or state.memory.judged >= team.generation or not own.out_of_group:
        return state
    if own.generation != team.generation or own.state == "paused":
        return state
    if any(report.state in TEAMED for report in reports.values()):
        return state
    state = state.remember(judged=team.generation)
    members = {node: reports[node] for node in team.nodes if node in reports}
    if any(report.generation != team.generation for report in members.values()):
        return state  # Others have formed newer teams since, while these ranks started again.
    if len(members) < len(team.nodes) or any(
        report.leaving or not report.out_of_group for report in members.values()
    ):
        return state
    memory = state.memory
    broken = memory.broken.added(max(report.step for report in members.values()))
    return replace(state, memory=_blame(replace(memory, broken=broken), state, members))


def _blame(memory: Memory, state: State, members: dict[str, NodeReport]) -> Memory:
    """Return the memory of a break that nothing else explains: who did not form the group."""
    own = state.own
    newest = max(report.trained for report in members.values())
    late = {node for node, report in members.items() if report.trained < newest}
    if newest == own.generation and not late:
        return replace(memory, failed_forms=0)
    # Of equals the first one: nodes are in rank order.
    holder = max(members, key=lambda node: (members[node].trained, members[node].step))
    for node in late:
        memory = memory.leaving_out(node, state.now)
    failed_forms = memory.failed_forms + 1
    restarts = memory.late
    if failed_forms > 1 and own.state in WAITING:
        restarts = own.node in late if late else own.node != holder
    return replace(memory, failed_forms=failed_forms, late=restarts)


def fails_apart(state: State, node: str) -> bool:
    """Return whether others go on, as a team that a node whose ranks failed was about to join.

    Its error, such as a missing file or a broken driver, is not theirs. That of ranks which have
    trained is: the others may just have gone on without them for a moment.
    """
    if state.reports[node].trained:
        return False
    last = state.newest
    if last is None or node in last.nodes:
        return False
    states = [report.state for report in state.reports.values() if report.trained]
    return any(each in TEAMED | WAITING | {"ended"} for each in states)


def parted(state: State, team: Collection[str]) -> dict[str, str]:
    """Return why each node that the next `team` lacks is not in it, as far as that is known."""
    found = {}
    for node in state.settings.nodes:
        report = state.reports.get(node)
        if node in team or (report is None and node not in state.gone):
            continue
        if report is None:
            found[node] = state.loss(node).message
        elif report.leaving:
            found[node] = Cause.left(node, report.leaving, report.returns).message
        elif report.failure:
            found[node] = report.failure.message
        elif report.voteless:
            found[node] = report.voteless
    return found
