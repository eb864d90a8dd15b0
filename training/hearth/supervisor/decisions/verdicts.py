"""The end of a run, or of this node's part in it, and its cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hearth.diagnose import first_failure, is_echo
from hearth.supervisor.cause import Cause, LaunchOutcome
from hearth.supervisor.decisions.notes import Notes
from hearth.supervisor.decisions.retries import (
    FUTILE,
    LEFT_OUT_WITHIN,
    is_retried,
    others_go_on,
    state_elsewhere,
)
from hearth.supervisor.decisions.view import Conclude, Depart, View
from hearth.supervisor.decisions.voting import newest_committed
from hearth.supervisor.messages import TEAMED, WAITING

COLLECT = 1.0
"""Seconds in which the errors of other nodes may still arrive: the first real one is the cause."""

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


def conclusion(view: View, notes: Notes) -> Conclude | Depart | None:
    """Return the end of this node's part in the run, or None while it goes on."""
    stop = notes.stop
    if stop and stop.now:
        return Conclude(_stopped(view, notes, "stopped at once"))
    if notes.verdict:
        return Conclude(notes.verdict)
    if notes.failures:
        return _failed(view, notes)
    return (
        _over(view, notes)
        or _finished_alone(view)
        or _departs(view, notes)
        or _failed_apart(view)
        or (_stopped_alone(view, notes) if stop else None)
        or _futile(view, notes)
        or _first_loss(view, notes)
    )


def waited_too_long(
    view: View, notes: Notes, missing: tuple[str, ...], why: str
) -> Conclude | None:
    """Return the end of a run whose missing nodes did not come in time.

    `why` is the reason why the nodes that are here do not go on without them.
    """
    settings = view.settings
    if not missing or notes.idle_since is None:
        return None
    # A node with an empty disk learns from the others that the run has begun.
    begun = newest_committed(report.votes for report in view.reports.values()) or notes.team
    patience, limit = settings.ready_timeout, ""
    # A node that waits for its turn is there: the timeout counts from its last word.
    queued = (view.queued.get(node, 0.0) for node in missing)
    since = max(notes.idle_since, notes.held_until, *queued)
    if not begun:
        patience = max(settings.first_timeout, patience)
    elif not _all_refuse(view, missing, patience):
        patience = max(settings.return_timeout, settings.ready_timeout)
    elif settings.return_timeout > patience:
        limit = (
            "launch_ready_timeout, not launch_return_timeout: the machines answer, and no "
            "supervisor of the run has started there again"
        )
    if view.now - since <= patience:
        return None
    names = ", ".join(missing)
    reasons = [each for each in (limit, why if begun else "") if each]
    reasons += [report.voteless for report in view.reports.values() if report.voteless]
    reason = f" ({'; '.join(reasons)})" if reasons else ""
    if notes.lost:
        message = f"{notes.lost.message}; {names} did not come back within {patience:g} s{reason}"
        return _end("failed", Cause(missing[0], None, "node_lost", message))
    message = f"{names} did not get ready within {patience:g} s{reason}"
    return _end("failed", Cause(missing[0], None, "not_ready", message))


def _all_refuse(view: View, missing: tuple[str, ...], patience: float) -> bool:
    """Return whether the machines of all missing nodes say that no supervisor listens there."""
    absences = [view.gone.get(node) for node in missing]
    return all(
        absence and absence.why.startswith("refused") and view.now - absence.since > patience
        for absence in absences
    )


def _failed(view: View, notes: Notes) -> Conclude | None:
    """Return the end by a rank's own error, once other nodes had the time to tell theirs.

    The first connected node decides, and the others a moment later if it did not.
    """
    turn = [*view.reports].index(view.node)
    heard = min(at for _, at in notes.failures.values())
    if view.now < heard + COLLECT + turn * _STEPS_APART:
        return None
    errors = [
        _Error(node, failure.rank, failure.message) for node, (failure, _) in notes.failures.items()
    ]
    first = first_failure(errors)
    return _end("failed", Cause(first.node, first.rank, "rank_failed", first.message))


def _failed_apart(view: View) -> Conclude | None:
    """Return the end of a node whose ranks failed by an error of their own that is not the run's.

    An error that is the run's is among the notes, and has ended it.
    """
    own = view.own
    if own.state != "failed" or own.failure is None or is_retried(view, own.node, own.failure):
        return None
    cause = Cause(own.node, own.failure.rank, "rank_failed", own.failure.message)
    return _end("failed", cause, everywhere=False)


def _over(view: View, notes: Notes) -> Conclude | None:
    """Return the end of a run whose ranks have ended, once those of all connected members have."""
    outcome = notes.over
    own, team = view.own, view.team
    if not outcome or own.state in TEAMED | WAITING or own.state == "ready":
        return None
    members = team.nodes if team else ()
    if own.state == "ended":
        busy = [view.reports[node].state for node in members if node in view.reports]
    else:  # The verdict would end ranks that are still writing what they learned.
        busy = [report.state for report in view.reports.values() if report.state in TEAMED]
    if any(state in TEAMED | WAITING for state in busy):
        return None
    if outcome == "finished":
        return _end("finished")
    return Conclude(_stopped(view, notes, "stopped"))


def _finished_alone(view: View) -> Conclude | None:
    """Return the end of a run that was at its end when the house wanted the last machine."""
    own = view.own
    others = [each.report for each in view.heard.values()]
    goes_on = any(report.trained and report.state in TEAMED | WAITING for report in others)
    if own.state == "ended" and own.returns and own.ended == "finished" and not goes_on:
        return _end("finished")
    return None


def _departs(view: View, notes: Notes) -> Depart | None:
    """Return the departure of this node, which leaves in order, once its ranks are away."""
    own = view.own
    if not own.leaving or own.returns or notes.left_at is None:
        return None
    away = own.state not in TEAMED | WAITING
    if away or view.now - notes.left_at > LEAVE_TIMEOUT:
        return Depart(own.leaving)
    return None


def _stopped_alone(view: View, notes: Notes) -> Conclude | None:
    """Return the end of a node that was asked to stop and whose ranks have nothing to save."""
    own = view.own
    if own.state == "failed" and own.failure:
        cause = Cause(own.node, own.failure.rank, "rank_failed", own.failure.message)
        return _end("failed", cause, everywhere=False)
    if own.state == "ended" or own.state in TEAMED or (own.state in WAITING and own.trained):
        return None
    begun = notes.team or own.votes.committed
    how = "stopped" if begun else "stopped waiting"
    return Conclude(_stopped(view, notes, how), everywhere=False)


def _futile(view: View, notes: Notes) -> Conclude | None:
    """Return the end of a run in which trying again does not help."""
    own, team = view.own, view.team
    if notes.broken.count >= FUTILE and team:
        names = ", ".join(team.nodes)
        why = f": {own.why}" if own.why else ""
        message = (
            f"the group of {names} broke {FUTILE} times in a row without a step gained, with all "
            f"of them connected{why}"
        )
        return _end("failed", Cause(own.node, None, "rank_failed", message))
    if view.settings.relaunched and notes.broken.count and not view.settings.return_timeout:
        reasons = {node: report.why for node, report in view.reports.items()}
        first = next((node for node in reasons if is_echo(reasons[node])), own.node)
        return _end("failed", Cause(first, None, "rank_failed", reasons[first]))
    failure = own.failure
    if own.state != "failed" or failure is None or not is_retried(view, own.node, failure):
        return None
    cause = Cause(own.node, failure.rank, "rank_failed", failure.message)
    if view.settings.return_timeout == 0:
        return _end("failed", cause)
    if notes.restarts < FUTILE:
        return None
    return _tries_no_more(view, notes, cause)


def _tries_no_more(view: View, notes: Notes, cause: Cause) -> Conclude | None:
    """Return the end after the last try of this node's ranks: of its part, if others go on."""
    tries = f"{FUTILE} starts in a row led nowhere"
    if view.settings.elastic and state_elsewhere(view, view.node):
        if others_go_on(view):
            out = f"{tries}; {view.node} is left out for the rest of the run"
            message = f"{cause.message} ({out})"
            return _end("failed", replace(cause, message=message), everywhere=False)
        if notes.failed_at is None or view.now - notes.failed_at < LEFT_OUT_WITHIN:
            return None
    return _end("failed", replace(cause, message=f"{cause.message} ({tries})"))


def _first_loss(view: View, notes: Notes) -> Conclude | None:
    """Return the end of a run that the first loss ends."""
    if view.settings.return_timeout or notes.lost is None:
        return None
    return _end("failed", notes.lost)


def _end(state: str, cause: Cause | None = None, everywhere: bool = True) -> Conclude:
    return Conclude(LaunchOutcome(state, cause), everywhere)


def _stopped(view: View, notes: Notes, how: str) -> LaunchOutcome:
    """Return the outcome of a run that was stopped: where, and why if no user asked for it."""
    stop = notes.stop
    node = stop.node if stop else view.node
    message = f"{how}: {stop.why}" if stop and stop.why else f"{how}, as asked on {node}"
    return LaunchOutcome("stopped", Cause(node, None, "stopped", message))
