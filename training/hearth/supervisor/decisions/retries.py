"""New starts of ranks that failed: for which errors, after how long, and how many. Pure.

An error of one machine is tried again there while others have the run's state, and then ends that
node's part only. An error that would come again on every machine ends the run.
"""

from __future__ import annotations

from hearth.diagnose import is_echo
from hearth.supervisor.cause import Failure
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
"""Seconds in which the others go on without a node that tries no more; else the run ends."""


def curable(failure: Failure) -> bool:
    """Return whether a new start of the ranks may succeed: the error is not their own."""
    return failure.curable or is_echo(failure.message)


def is_retried(state: State, node: str, failure: Failure) -> bool:
    """Return whether the ranks of `node` are started again after this failure."""
    return curable(failure) or (failure.local and state_elsewhere(state, node))


def state_elsewhere(state: State, node: str) -> bool:
    """Return whether living ranks of another connected node have the run's state."""
    others = (report for other, report in state.reports.items() if other != node)
    return any(report.trained and report.state in TEAMED | WAITING for report in others)


def led_somewhere(state: State, failure: Failure, trained: float) -> bool:
    """Return whether this node's ranks got on before they failed, after `trained` seconds in it."""
    return trained >= LASTING if failure.local else state.ranks.gained > 0


def others_go_on(state: State) -> bool:
    """Return whether other nodes train in a team without this one."""
    last = state.newest
    trains = any(each.report.state in TEAMED for each in state.heard.values())
    return trains and last is not None and state.node not in last.nodes
