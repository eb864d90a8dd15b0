"""The supervision of one node's part in a run, from its lock to its outcome."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hearth.supervise.life import NodeSupervisor, live
from hearth.supervise.record import RunRecord
from hearth.supervise.spec import Spec


def supervise(spec: Spec, unit: str | None = None, last: dict[str, Any] | None = None) -> RunRecord:
    """Run this node's part of a run, with resident or relaunched ranks; return its last record.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.

    Raises:
        NodeTaken: another run has the node.
        LaunchError: its folders cannot be written.
    """
    kind: type[NodeSupervisor]
    if spec.resident:  # by name, since that package builds on this one
        kind = import_module("hearth.team.member").Member
    else:
        kind = import_module("hearth.team.relaunched").RelaunchedMember
    return live(kind, spec, unit, last)
