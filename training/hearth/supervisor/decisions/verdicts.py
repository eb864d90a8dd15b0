"""The end of a run, or of this node's part in it, and its cause. Pure.

An error of one machine is tried again there while others have the run's state, and then ends that
node's part only. An error that would come again on every machine ends the run. Ranks that have the
run's state write a checkpoint first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from hearth.diagnose import first_failure, is_echo
from hearth.ranks.control_protocol import Interrupt, Leave
from hearth.supervisor.cause import Cause, LaunchOutcome, RanksFailure
from hearth.supervisor.decisions.actions import Action, Conclude, Depart, SendVerdict, TellRanks
from hearth.supervisor.decisions.own_ranks import STEP_PATIENCE
from hearth.supervisor.decisions.state import State
from hearth.supervisor.messages import TEAMED, WAITING

FUTILE = 4
"""Failures in a row without a step gained, after which another try would fail, too."""

LASTING = 600.0
"""Seconds of training after which an error of the machine counts as its first one again.

It may come once in a hundred steps, so that a step gained says nothing. A launch of a user's script
that lasted so long has led somewhere.
"""

LEFT_OUT_WITHIN = 10.0
"""Seconds that the others have to go on without a node that tries no more; else the run ends."""


def curable(failure: RanksFailure) -> bool:
    """Return whether a new start of the ranks may succeed: the error is not their own."""
    return failure.curable or is_echo(failure.message)


def is_retried(state: State, node: str, failure: RanksFailure) -> bool:
    """Return whether the ranks of `node` are started again after this failure."""
    if curable(failure):
        return True
    begins = failure.of_disk and _others_can_begin(state, node)
    return begins or (failure.local and state_elsewhere(state, node))


def _others_can_begin(state: State, node: str) -> bool:
    """Return whether other nodes, which are fit, may be the run's first team without `node`."""
    settings = state.settings
    fit = [
        other
        for other, report in state.reports.items()
        if other != node and not (report.only_votes or report.ended)
    ]
    return settings.elastic and state.newest is None and len(fit) >= max(1, settings.min_nodes)


def state_elsewhere(state: State, node: str) -> bool:
    """Return whether ranks of another connected node have the run's state, or finished it."""
    others = (report for other, report in state.reports.items() if other != node)
    return any(report.trained and report.state in TEAMED | WAITING | {"ended"} for report in others)


def led_somewhere(state: State, failure: RanksFailure, trained: float) -> bool:
    """Return whether this node's ranks got on before they failed, after `trained` seconds in it."""
    return trained >= LASTING if failure.local else state.ranks.gained > 0


def others_go_on(state: State) -> bool:
    """Return whether other nodes train in a team without this one."""
    last = state.newest
    trains = any(each.report.state in TEAMED for each in state.heard.values())
    return trains and last is not None and state.node not in last.nodes


COLLECT = 1.0
"""Seconds to wait for the errors of other nodes: the first real one is the cause."""

LEAVE_TIMEOUT = 40.0
"""Seconds after which a node that leaves goes, even if no team was formed without it.

A unit of systemd is given a minute at least (`unit`), and its ranks get the last seconds of it.
"""

_STEPS_APART = 0.5


@dataclass(frozen=True)
class _Error:
    node: str
    rank: int | None
    message: str


def conclusion(state: State) -> Conclude | Depart | None:
    """Return the end of this node's part in the run, or None while it goes on."""
    # While others may still tell an error, which may be the cause, nothing else ends the run.
    rules = ENDS[:3] if state.memory.failures else ENDS
    return next((end for rule in rules if (end := rule(state))), None)


def waited_too_long(state: State, missing: tuple[str, ...], why: str) -> Conclude | None:
    """Return the end of a run whose missing nodes did not come in time.

    `why` is the reason why the nodes that are here do not go on without them.
    """
    settings = state.settings
    if not missing or state.memory.idle_since is None:
        return None
    # A node with an empty disk learns from the others that the run has begun.
    begun = state.newest or state.memory.team
    patience, limit = settings.ready_timeout, ""
    since = max(state.memory.idle_since, state.memory.held_until)
    if not begun:
        patience = max(settings.first_timeout, patience)
    elif not _all_refuse(state, missing, patience):
        patience = max(settings.return_timeout, settings.ready_timeout)
    elif settings.return_timeout > patience:
        limit = (
            "launch_ready_timeout, not launch_return_timeout: the machines answer, and no "
            "supervisor of the run has started there again"
        )
    if state.now - since <= patience:
        return None
    names = ", ".join(missing)
    reasons = [each for each in (limit, why if begun else "") if each]
    reasons += [report.voteless for report in state.reports.values() if report.voteless]
    reason = f" ({'; '.join(reasons)})" if reasons else ""
    if lost := state.memory.lost:
        message = f"{lost.message}; {names} did not come back within {patience:g} s{reason}"
        return _end("failed", Cause(missing[0], None, "node_lost", message))
    message = f"{names} did not get ready within {patience:g} s{reason}"
    return _end("failed", Cause(missing[0], None, "not_ready", message))


def _all_refuse(state: State, missing: tuple[str, ...], patience: float) -> bool:
    """Return whether the machines of all missing nodes say that no supervisor listens there."""
    absences = [state.gone.get(node) for node in missing]
    return all(
        absence and absence.why.startswith("refused") and state.now - absence.since > patience
        for absence in absences
    )


def _failed(state: State) -> Conclude | None:
    """Return the end of a run by a rank's own error, once other nodes had time to tell theirs.

    The first connected node decides, and the others a moment later if it did not.
    """
    if not state.memory.failures:
        return None
    turn = [*state.reports].index(state.node)
    heard = min(at for _, at in state.memory.failures.values())
    if state.now < heard + COLLECT + turn * _STEPS_APART:
        return None
    errors = [
        _Error(node, failure.rank, failure.message)
        for node, (failure, _) in state.memory.failures.items()
    ]
    first = first_failure(errors)
    return _end("failed", Cause(first.node, first.rank, "rank_failed", first.message))


def _stopped_at_once(state: State) -> Conclude | None:
    """Return the end of a run that is to stop at once."""
    if state.stopping and state.stopping.now:
        return Conclude(_stopped(state, "stopped at once"))
    return None


def _failed_already(state: State) -> Conclude | None:
    """Return the end of a run that has failed, once this node's ranks have saved its state."""
    return state.verdict


def _failed_apart(state: State) -> Conclude | None:
    """Return the end of a node whose ranks failed by an error of their own that is not the run's.

    An error that is the run's is remembered, and has ended it.
    """
    own = state.own
    if own.state != "failed" or own.failure is None or is_retried(state, own.node, own.failure):
        return None
    cause = Cause(own.node, own.failure.rank, "rank_failed", own.failure.message)
    return _end("failed", cause, everywhere=False)


def _over(state: State) -> Conclude | None:
    """Return the end of a run whose ranks have ended, once those of all connected members have."""
    outcome = state.over
    own, team = state.own, state.team
    if not outcome or own.state in TEAMED | WAITING or own.state == "ready":
        return None
    members = team.nodes if team else ()
    if own.state == "ended":
        busy = [state.reports[node].state for node in members if node in state.reports]
    else:  # The verdict would end ranks that are still writing what they learned.
        busy = [report.state for report in state.reports.values() if report.state in TEAMED]
    if any(state in TEAMED | WAITING for state in busy):
        return None
    if outcome == "finished":
        return _end("finished")
    return Conclude(_stopped(state, "stopped"))


def _finished_alone(state: State) -> Conclude | None:
    """Return the end of a run that was at its end when the owner wanted the last machine."""
    own = state.own
    others = [each.report for each in state.heard.values()]
    goes_on = any(report.trained and report.state in TEAMED | WAITING for report in others)
    if own.state == "ended" and own.returns and own.ended == "finished" and not goes_on:
        return _end("finished")
    return None


def _departs(state: State) -> Depart | None:
    """Return the departure of this node, which leaves in order, once its ranks are away."""
    own = state.own
    if not own.leaving or own.returns or state.memory.left_at is None:
        return None
    away = own.state not in TEAMED | WAITING
    if away or state.now - state.memory.left_at > LEAVE_TIMEOUT:
        return Depart(own.leaving)
    return None


def _stopped_alone(state: State) -> Conclude | None:
    """Return the end of a node that was asked to stop and whose ranks have nothing to save."""
    own = state.own
    if not state.stopping:
        return None
    if own.state == "failed" and own.failure:
        cause = Cause(own.node, own.failure.rank, "rank_failed", own.failure.message)
        return _end("failed", cause, everywhere=False)
    if own.state == "ended" or own.state in TEAMED or (own.state in WAITING and own.trained):
        return None
    begun = state.memory.team or own.votes.committed
    how = "stopped" if begun else "stopped waiting"
    return Conclude(_stopped(state, how), everywhere=False)


def _futile(state: State) -> Conclude | None:
    """Return the end of the run if another retry would not help, else None."""
    own, team, memory = state.own, state.team, state.memory
    settings = state.settings
    if memory.broken.count >= FUTILE and team:
        names = ", ".join(team.nodes)
        why = f": {own.why}" if own.why else ""
        message = (
            f"the group of {names} broke {FUTILE} times in a row without a step gained, with all "
            f"of them connected{why}"
        )
        return _end("failed", Cause(own.node, None, "rank_failed", message))
    if settings.relaunched and memory.broken.count and not settings.return_timeout:
        reasons = {node: report.why for node, report in state.reports.items()}
        first = next((node for node in reasons if is_echo(reasons[node])), own.node)
        return _end("failed", Cause(first, None, "rank_failed", reasons[first]))
    failure = own.failure
    if own.state != "failed" or failure is None or not is_retried(state, own.node, failure):
        return None
    cause = Cause(own.node, failure.rank, "rank_failed", failure.message)
    if settings.return_timeout == 0:
        return _end("failed", cause)
    if memory.restarts < FUTILE:
        return None
    return _tries_no_more(state, cause)


def _tries_no_more(state: State, cause: Cause) -> Conclude | None:
    """Return the end after the last try of this node's ranks: of its part, if others go on."""
    tries, failed_at = f"{FUTILE} starts in a row led nowhere", state.memory.failed_at
    if state.settings.elastic and state_elsewhere(state, state.node):
        if others_go_on(state):
            out = f"{tries}; {state.node} is left out for the rest of the run"
            message = f"{cause.message} ({out})"
            return _end("failed", replace(cause, message=message), everywhere=False)
        if failed_at is None or state.now - failed_at < LEFT_OUT_WITHIN:
            return None
    return _end("failed", replace(cause, message=f"{cause.message} ({tries})"))


def _first_loss(state: State) -> Conclude | None:
    """Return the end of a run that the first loss ends."""
    if state.settings.return_timeout or state.memory.lost is None:
        return None
    return _end("failed", state.memory.lost)


def _end(
    state: Literal["finished", "failed"], cause: Cause | None = None, everywhere: bool = True
) -> Conclude:
    return Conclude(LaunchOutcome(state, cause), everywhere)


def _stopped(state: State, how: str) -> LaunchOutcome:
    """Return the outcome of a run that was stopped: where, and why if no user asked for it."""
    stop = state.stopping
    node = stop.node if stop else state.node
    message = f"{how}: {stop.why}" if stop and stop.why else f"{how}, as asked on {node}"
    return LaunchOutcome("stopped", Cause(node, None, "stopped", message))


ENDS: tuple[Callable[[State], Conclude | Depart | None], ...] = (
    _stopped_at_once,
    _failed_already,
    _failed,
    _over,
    _finished_alone,
    _departs,
    _failed_apart,
    _stopped_alone,
    _futile,
    _first_loss,
)
"""The ends of a run, or of a node's part in it: the first that holds."""


def end_moves(state: State, end: Conclude | Depart) -> list[Action]:
    """Return the moves of a node whose part in the run ends: first those that save its state."""
    if not isinstance(end, Conclude) or end.outcome.state != "failed" or not _can_save(state):
        return [end]
    first: list[Action] = [] if state.verdict else [SendVerdict(end.outcome)]
    return first + _save(state, end.outcome)


def _can_save(state: State) -> bool:
    """Return whether this node's ranks have the state of the run, and get to writing it.

    Those of fsdp and pipeline have a part of it each: without the others' it is no checkpoint.
    Once they write, the watch for hanging ranks bounds their time.
    """
    own, settings = state.own, state.settings
    if not own.trained or (settings.relaunched and not settings.scripted):
        return False
    late = state.verdict is not None and state.now - state.memory.verdict_at > STEP_PATIENCE
    if own.state in TEAMED:
        return not late
    return own.state in WAITING and not settings.relaunched


def _save(state: State, outcome: LaunchOutcome) -> list[Action]:
    """Return the order that gets this node's ranks out of their group, or that to save and end."""
    own = state.own
    if state.settings.scripted:
        return [] if state.memory.told_leave else [TellRanks(Leave(save=True))]
    if own.state in TEAMED and state.memory.interrupted < own.generation:
        why = outcome.cause.message if outcome.cause else outcome.state
        return [TellRanks(Interrupt(own.generation, f"the run ends: {why}"))]
    if own.state in WAITING and not state.memory.told_leave:
        return [TellRanks(Leave(save=True))]
    return []
