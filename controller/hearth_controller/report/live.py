"""The live page: the state of all runs and nodes, and the report of one run below. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from hearth.base.text import NOT_KNOWN
from hearth_controller.report.page import render
from hearth_controller.runs.status_table import (
    gpu_rows,
    node_rows,
    run_notes,
    run_rows,
    shown_runs,
)

PLACE = "/runs/"
"""The path of the pages of runs; the name of a run follows."""


def live_page(
    status: Mapping[str, Any],
    trouble: str,
    chosen: str,
    report: Mapping[str, Any] | None,
    local: Sequence[str],
) -> str:
    """Return the page of the run `chosen` as HTML.

    `status` is that of `hearth status`, {} before the first one, and `trouble` why there is no
    newer one. `report` has the contents of the run's report, None if its files are not here, and
    `local` are the runs that have a folder on this computer.
    """
    runs, nodes = shown_runs(status.get("runs", [])), status.get("nodes", [])
    tables = [run_rows(runs), node_rows(nodes), gpu_rows(nodes)]
    names = {run["name"] for run in runs}
    others = [name for name in local if name not in names]
    overview = {
        "time": _clock(status["time"]) if status else "",
        "trouble": trouble,
        "verdict": status.get("verdict", ""),
        "reasons": (status["reasons"] or ["all is well"]) if status else [],
        "tables": [rows for rows in tables if len(rows) > 1],
        "notes": {run["name"]: run_notes(run) for run in runs},
        "links": {name: PLACE + quote(name, safe="") for name in (*names, *others)},
        "others": others,
        "chosen": chosen,
        "unknown": NOT_KNOWN,
    }
    return render("live.html.j2", {"known": None, **(report or {}), **overview})


def _clock(time: str) -> str:
    """Return the local time of day of an ISO 8601 time."""
    return datetime.fromisoformat(time).astimezone().strftime("%H:%M:%S")
