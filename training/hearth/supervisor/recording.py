"""The record of the run on a node, as its decisions have it written."""

from __future__ import annotations

from dataclasses import replace

from hearth.supervisor.cause import Cause
from hearth.supervisor.context import SupervisorContext
from hearth.supervisor.decisions import actions


def put_on_record(context: SupervisorContext, action: actions.Action) -> None:
    """Change the record of the run as an action asks for, and write it."""
    record = context.record
    match action:
        case actions.RecordTraining(config):
            record.generation = config.generation
            record.cause = None
            record.missing = []
            record.enter("running")
        case actions.RecordEnd(cause):
            record.launch_ended(cause)
        case actions.RecordCause(cause):
            record.launches[-1] = replace(record.launches[-1], cause=cause)
        case actions.RecordAway(why):
            record.wait()
            record.away = why
        case actions.SayWaiting():
            _record_waiting(context, action)
        case actions.SayUnreached(gaps):
            _record_unreached(context, gaps)
    record.write(context.spec.record)


def _record_waiting(context: SupervisorContext, waits: actions.SayWaiting) -> None:
    """Record the nodes that this one waits for."""
    record = context.record
    record.missing = list(waits.missing)
    if waits.missing:
        record.wait()
        context.say(f"waiting for {', '.join(waits.missing)}" + (waits.why and f": {waits.why}"))
    if waits.wanted:
        record.cause = Cause.held_up(waits.wanted)
    elif record.cause and record.cause.kind == "away":
        record.cause = None


def _record_unreached(context: SupervisorContext, gaps: tuple[str, ...]) -> None:
    """Record which nodes do not reach each other."""
    known, context.record.unreached = context.record.unreached, list(gaps)
    for gap in gaps:
        if gap not in known:
            context.say(f"{gap}; trying again")
    if known and not gaps:
        context.say("all nodes reach each other again")
