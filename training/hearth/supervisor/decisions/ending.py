"""The end of a run by an error: ranks that have its state write a checkpoint first. Pure."""

from __future__ import annotations

from hearth.ranks.control_protocol import Interrupt, Leave
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.decisions.actions import Conclude, Depart, Move, SendVerdict, TellRanks
from hearth.supervisor.decisions.own_ranks import STEP_PATIENCE
from hearth.supervisor.decisions.state import State
from hearth.supervisor.messages import TEAMED, WAITING


def end_moves(state: State, end: Conclude | Depart) -> list[Move]:
    """Return the moves of a node whose part in the run ends: first those that save its state."""
    if not isinstance(end, Conclude) or end.outcome.state != "failed" or not _can_save(state):
        return [end]
    told: list[Move] = [] if state.verdict else [SendVerdict(end.outcome)]
    return told + _save(state, end.outcome)


def _can_save(state: State) -> bool:
    """Return whether this node's ranks have the state of the run, and get to writing it.

    Once they write, the watch for hanging ranks bounds their time.
    """
    own = state.own
    if state.settings.relaunched or not own.trained:
        return False
    late = state.verdict is not None and state.now - state.memory.verdict_at > STEP_PATIENCE
    return own.state in WAITING or (own.state in TEAMED and not late)


def _save(state: State, outcome: LaunchOutcome) -> list[Move]:
    """Return the order that gets this node's ranks out of their group, or that to save and end."""
    own = state.own
    if own.state in TEAMED and state.memory.interrupted < own.generation:
        why = outcome.cause.message if outcome.cause else outcome.state
        return [TellRanks(Interrupt(own.generation, f"the run ends: {why}"))]
    if own.state in WAITING and not state.memory.told_leave:
        return [TellRanks(Leave(save=True))]
    return []
