"""Resume a run on this node after its supervisor went down.

The supervisor comes back with its machine and joins the others, who have waited; the run resumes
from its newest checkpoint. If the others' wait timed out, they have ended the run meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import fields, replace
from typing import Any

from hearth.base.errors import LaunchError
from hearth.supervisor.cause import Cause, LaunchOutcome, generation_of
from hearth.supervisor.preflight import ready
from hearth.supervisor.record import RunRecord
from hearth.supervisor.recorded import record_in
from hearth.supervisor.spec import Spec

RETRY = 1.0

_FIELDS = frozenset(field.name for field in fields(RunRecord))


def last_record(spec: Spec) -> dict[str, Any] | None:
    """Return the record of this launch, or None: never started, or corrupted by a power cut."""
    record = record_in(spec.record)
    # Relaunches within the run raise its generation above the spec's.
    return record if generation_of(record) >= spec.generation else None


def ready_again(spec: Spec) -> Spec:
    """Return the spec as `ready` does, but wait for an address that appears only after boot.

    Raises `LaunchError` if it did not appear within the time that the others wait.
    """
    until = time.monotonic() + spec.patience
    while True:
        try:
            return ready(spec)
        except LaunchError:
            if time.monotonic() > until:
                raise
        time.sleep(RETRY)


def close_record(spec: Spec, record: dict[str, Any], message: str) -> RunRecord:
    """Record the run as failed on this node, for a supervisor that could not do so itself."""
    of_spec = ("run", "node", "rank", "nodes", "script")
    kept = {name: record[name] for name in _FIELDS - {*of_spec} if name in record}
    cause = Cause(spec.node, None, "node_lost", message)
    closed = RunRecord.from_spec(spec, **kept | {"cause": cause})
    closed.enter("failed")
    closed.write(spec.record)
    return closed


def as_lost(verdict: LaunchOutcome, node: str, last_sign: str) -> LaunchOutcome:
    """Return `verdict` for a node that was down: if the others gave up, its loss is the cause."""
    if verdict.cause is None or verdict.cause.kind != "not_ready":
        return verdict
    message = (
        f"{node} went down in the middle of the run (its last sign of life: {last_sign}), which "
        f"the others have ended; back again, {verdict.cause.message}"
    )
    return replace(verdict, cause=Cause(node, None, "node_lost", message))
