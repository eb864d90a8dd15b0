"""One real sum across all nodes, on the path that training takes."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from typing import Any

from hearth.base.systemd import take_limit_of_units
from hearth.supervise.life import STOP_NOW
from hearth.supervise.preflight import ready
from hearth.supervise.spec import Spec
from hearth.supervise.supervisor import supervise

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
    spec = ready(replace(spec, run=RUN, script=SCRIPT, unit=False, in_place=False))
    shutil.rmtree(spec.results, ignore_errors=True)
    spec.log.unlink(missing_ok=True)
    spec.results.mkdir(parents=True)
    late = threading.Event()
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
    if late.is_set() or record.cause is None or record.cause.kind == "stopped":
        why = f"no end within {limit:g} s: a firewall between the nodes, or a very slow link?"
        return {"facts": {"culprit": None}, "findings": [f"{why} The log is {spec.log}"]}
    culprit = {"culprit": record.cause.node}
    return {"facts": culprit, "findings": [f"{record.cause.message} (log: {spec.log})"]}


def _give_up(spec: Spec, late: threading.Event) -> None:
    late.set()
    spec.stop_file.write_text(STOP_NOW)
