"""One real sum across all nodes, on the path that training takes."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hearth.base.errors import LaunchError
from hearth.base.systemd import take_limit_of_units
from hearth.supervisor.in_turn import supervise
from hearth.supervisor.preflight import ready
from hearth.supervisor.record import read_record
from hearth.supervisor.requests import STOP_NOW
from hearth.supervisor.spec import Spec

RUN = "hearth-verify"
"""Run name under which the supervisors start the check; its files are removed afterwards."""

SCRIPT = "scripts/check_all_reduce.py"
ANSWER = "all_reduce.json"
MEBIBYTES = 4


def all_reduce(spec: Spec, limit: float) -> dict[str, Any]:
    """Take part with this node, under the limits of a run, and return the `facts` and `findings`.

    Facts, on rank 0: `nodes` that took part, by rank; `wrong`, the nodes with a wrong sum; `over`,
    the back end; `seconds` per sum. The check is ended after `limit` seconds.

    Raises `LaunchError` if a run is under way here, or the node's address is not its own.
    """
    take_limit_of_units()
    spec = ready(replace(spec, run=RUN, script=SCRIPT, unit=False, resident=False))
    shutil.rmtree(spec.results, ignore_errors=True)
    spec.log.unlink(missing_ok=True)
    spec.results.mkdir(parents=True)
    late: dict[str, Any] = {}
    alarm = threading.Timer(limit, _give_up, (spec, late))
    alarm.daemon = True
    alarm.start()
    try:
        record = supervise(spec)
        answer = spec.results / ANSWER
        facts = json.loads(answer.read_text()) if answer.exists() else {}
    finally:
        alarm.cancel()
        shutil.rmtree(spec.results, ignore_errors=True)
    if record.state == "finished":
        spec.log.unlink(missing_ok=True)
        return {"facts": facts, "findings": []}
    if late or record.cause is None or record.cause.kind == "stopped":
        why = why_late(spec.node, limit, late, os.getloadavg()[0], os.cpu_count() or 1)
        return {"facts": {"culprit": None}, "findings": [f"{why} (log: {spec.log})"]}
    culprit = {"culprit": record.cause.node}
    return {"facts": culprit, "findings": [f"{record.cause.message} (log: {spec.log})"]}


def why_late(
    node: str, limit: float, record: Mapping[str, Any], load: float, processors: int
) -> str:
    """Describe the progress of a node within `limit` seconds, and the probable cause of the delay.

    `record` is that of its supervisor then, `load` the mean number of busy processes.
    """
    if missing := record.get("missing"):
        came = f"it still waited for {', '.join(missing)}"
    elif record.get("state") == "running":
        came = "its ranks were started, and the sum had not ended"
    else:
        came = "its ranks were not started"
    if load > 1.5 * processors:
        cause = (
            f"{load:.0f} busy programs share its {processors} processors; end some, then verify "
            "again"
        )
    else:
        cause = "it is not busy: is another node, or is there a firewall or a very slow link?"
    return f"{node}: no end within {limit:g} s: {came}; {cause}"


def _give_up(spec: Spec, late: dict[str, Any]) -> None:
    """Stop the check; `late` gets the record of the supervisor."""
    late["state"] = "unknown"
    with suppress(LaunchError):
        late.update(read_record(spec.workspace, spec.run))
    spec.stop_file.write_text(STOP_NOW)
