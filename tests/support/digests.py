"""Nodes' digests of a run, as the module `hearth_runs` returns them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hearth.config import resolve_run, run_text

NODES = ["desk", "laptop"]


def record(node: str, state: str = "running", **more: Any) -> dict[str, Any]:
    """Return the record of a supervisor."""
    return {
        "run": "evening",
        "node": node,
        "rank": NODES.index(node),
        "generation": 0,
        "state": state,
        "since": "2026-11-20T20:01:00Z",
        "missing": [],
        "cause": None,
        "nodes": NODES,
        **more,
    }


def cause(node: str, kind: str, message: str) -> dict[str, Any]:
    """Return why a run ended."""
    return {"node": node, "rank": None, "kind": kind, "message": message}


STEP = {
    "kind": "step",
    "step": 30,
    "steps": 100,
    "loss": 2.125,
    "tokens_per_second": 812.5,
    "eta_seconds": 200.0,
    "energy_joules": 7.2e5,
}


def metrics(
    step: int | dict[str, Any] = 30, nodes: list[str] = NODES, generation: int = 0, **lines: Any
) -> dict[str, Any]:
    """Return the abridged record of a run; `lines` has other lines by kind, `teams` a list."""
    ranks = [{"rank": rank, "node": node} for rank, node in enumerate(nodes)]
    began = "2026-11-20T20:01:10+00:00"
    start = {"kind": "start", "time": began, "generation": generation, "ranks": ranks}
    before = {"kind": "evaluate", "when": "before", "perplexity": 48.44}
    teams = lines.pop("teams", [])
    last = step if isinstance(step, dict) else STEP | {"step": step}
    known = {"start": start, "before": before, "step": last, **lines}
    first = known.pop("start")
    return {
        "began": began,
        "spans": [[0.0, 95.0]],
        "lines": [json.dumps(line) for line in (first, *teams, *known.values())],
        "regroups": len(teams),
    }


def team(generation: int, step: int, *nodes: str, **left: str) -> dict[str, Any]:
    """Return the line of a team of these nodes; those that `left` have a reason."""
    return {
        "kind": "team",
        "time": "2026-11-20T20:05:00+00:00",
        "generation": generation,
        "step": step,
        "nodes": list(nodes),
        "left": left,
    }


def digest(node: str, state: str = "running", alive: bool = True, **more: Any) -> dict[str, Any]:
    """Return one node's digest of the run `evening`; `record_more` goes into its record."""
    return {
        "name": "evening",
        "run_file": "",
        "record": record(node, state, **more.pop("record_more", {})),
        "alive": alive,
        "silent_seconds": 1.0,
        "asked": None,
        "metrics": metrics() if node == "desk" else {},
        "checkpoint": {"step": 25, "age_seconds": 40.0},
        "curves": 5.0 if node == "desk" else None,
        "files": {"results/evening": 1000, "logs/evening.log": 24},
        **more,
    }


ALONE = metrics(nodes=["desk"])
"""Of a launch without the laptop."""
LOST = cause("laptop", "node_lost", "no sign of life for 15 s\nand more")
KILLED = cause("laptop", "rank_failed", "rank 1: CUDA out of memory")
WAITS = {"cause": LOST, "missing": ["laptop"]}


def ended(state: str, why: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Return the digests of a run that has ended, by node."""
    return {node: digest(node, state, False, record_more={"cause": why}) for node in NODES}


def run_file(folder: Path, name: str, **settings: Any) -> str:
    """Return the text of a run file with these settings."""
    given = {"model": "smollm2-135m", "run": name, **settings}
    return run_text(resolve_run(given, folder / "runs"))
