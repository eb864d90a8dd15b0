"""The end of a run by an error: ranks that have its state write a checkpoint first. Pure."""

from __future__ import annotations

from hearth.ranks.orders import Interrupt, Leave
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.decisions.notes import Notes
from hearth.supervisor.decisions.own_ranks import STEP_PATIENCE
from hearth.supervisor.decisions.view import Conclude, Depart, Move, SendVerdict, TellRanks, View
from hearth.supervisor.messages import TEAMED, WAITING


def end_moves(view: View, notes: Notes, end: Conclude | Depart) -> list[Move]:
    """Return the moves of a node whose part in the run ends: first those that save its state."""
    failed = isinstance(end, Conclude) and end.outcome.state == "failed"
    if not failed or not _can_save(view, notes):
        return [end]
    moves: list[Move] = []
    if notes.verdict is None:
        notes.verdict, notes.verdict_at = end.outcome, view.now
        moves.append(SendVerdict(end.outcome))
    return moves + _save(view, notes, end.outcome)


def _can_save(view: View, notes: Notes) -> bool:
    """Return whether this node's ranks have the state of the run, and get to writing it.

    Once they write, the watch for hanging ranks bounds their time.
    """
    own = view.own
    if view.settings.relaunched or not own.trained:
        return False
    late = notes.verdict is not None and view.now - notes.verdict_at > STEP_PATIENCE
    return own.state in WAITING or (own.state in TEAMED and not late)


def _save(view: View, notes: Notes, outcome: LaunchOutcome) -> list[Move]:
    """Return the order that gets this node's ranks out of their group, or that to save and end."""
    own = view.own
    if own.state in TEAMED and notes.interrupted < own.generation:
        notes.interrupted = own.generation
        why = outcome.cause.message if outcome.cause else outcome.state
        return [TellRanks(Interrupt(own.generation, f"the run ends: {why}"))]
    if own.state in WAITING and not notes.told_leave:
        notes.told_leave = True
        return [TellRanks(Leave(save=True))]
    return []
