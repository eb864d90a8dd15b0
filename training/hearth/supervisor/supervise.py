"""The supervision of one node's part in a run, from its lock to its outcome."""

from __future__ import annotations

import asyncio
from typing import Any

from hearth.supervisor.cause import ENDS
from hearth.supervisor.life import make_folders
from hearth.supervisor.member import Member
from hearth.supervisor.queue import leave_queue
from hearth.supervisor.record import RunRecord, node_lock
from hearth.supervisor.relaunched import RelaunchedMember
from hearth.supervisor.spec import Spec


def supervise(spec: Spec, unit: str | None = None, last: dict[str, Any] | None = None) -> RunRecord:
    """Run this node's part of a run, with resident or relaunched ranks; return its last record.

    `unit` is the systemd unit of this process, if any; `last` the record of a supervisor that
    went down in the middle of the run.

    Raises:
        NodeTaken: another run has the node.
        LaunchError: its folders cannot be written.
    """
    make_folders(spec)
    kind = Member if spec.resident else RelaunchedMember
    with node_lock(spec.workspace, spec.run):
        supervisor = kind(spec, unit, last)
        record = asyncio.run(supervisor.run())
    if record.state in ENDS:  # a machine that goes down waits for no message
        leave_queue(spec.workspace, spec.run)  # nor does the run behind this one
        supervisor.send_end()
    return record
