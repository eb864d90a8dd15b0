"""How runs and nodes are doing now, as one object that programs can read, and a verdict. Pure.

The object is what `docs/status.schema.json` describes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hearth_controller.runs.observed import RunSeen
from hearth_controller.base.verdict import Verdict, overall

NO_NVIDIA_SMI = "no nvidia-smi"
"""What `hearth_health` says of a node without the driver's tool."""

# A limit on power is what a GPU at work meets every day; the others mean that something is wrong.
_HARMLESS = frozenset({"power limit"})


def status(
    runs: Sequence[RunSeen],
    health: Mapping[str, Mapping[str, Any] | None],
    silent: Mapping[str, str],
    time: str,
) -> dict[str, Any]:
    """Return the object.

    `runs` are those that the nodes know, as `runs_seen` orders them; `health` is what
    `hearth_health` found by node, None where it found nothing; `silent` says why nodes do not
    answer; `time` is now (ISO 8601).
    """
    told = [_run(run) for run in runs]
    nodes = [_node(name, health[name], silent.get(name), runs) for name in health]
    verdict, reasons = judge(runs, nodes)
    return {"time": time, "verdict": verdict, "reasons": reasons, "runs": told, "nodes": nodes}


def judge(runs: Sequence[RunSeen], nodes: Sequence[Mapping[str, Any]]) -> tuple[Verdict, list[str]]:
    """Return how all of it stands, and why it is not good.

    Broken is a newest run that failed or was lost, or that no node answers. Degraded is a run that
    waits for a node or goes on without one, a node that does not answer, and a GPU that is held
    back or that its driver does not show. What became of earlier runs does not count.
    """
    broken = [f"{run.name} {_ENDED[run.state]}" for run in runs[:1] if run.state in _ENDED]
    degraded = []
    for run in runs:
        if run.alive and (run.cause or any(part.vanished for part in run.parts.values())):
            degraded.append(f"{run.name} is {run.state}: {run.why}")
        elif run.state == "running" and run.missing:
            degraded.append(f"{run.name} {run.why}")
    silent = [node["name"] for node in nodes if not node["answers"]]
    if nodes and len(silent) == len(nodes):
        broken.append("no node answers")
    else:
        degraded += [f"{name} does not answer" for name in silent]
    for node in nodes:
        degraded += [f"{node['name']}: {trouble}" for trouble in _gpu_troubles(node)]
    return overall(broken, degraded), broken + degraded


_ENDED = {"failed": "failed", "lost": "was lost with a node"}


def _gpu_troubles(node: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with a node's GPUs; to have none is not."""
    found = []
    if node["gpu_trouble"] and node["gpu_trouble"] != NO_NVIDIA_SMI:
        found.append(node["gpu_trouble"])
    for gpu in node["gpus"]:
        bad = [word for word in gpu["throttled_by"] or [] if word not in _HARMLESS]
        if bad:
            found.append(f"GPU {gpu['index']} ({gpu['name']}) is throttled: {', '.join(bad)}")
    return found


def _run(run: RunSeen) -> dict[str, Any]:
    before, after = run.perplexity
    return {
        "name": run.name,
        "state": run.state,
        "why": run.why,
        "missing": list(run.missing),
        "stopping": run.stopping,
        "model": run.model,
        "script": run.program,
        "step": run.step,
        "steps": run.steps,
        "loss": run.loss,
        "tokens_per_second": run.tokens_per_second,
        "eta_seconds": run.eta_seconds,
        "seconds": run.seconds,
        "begun": run.begun or None,
        "since": run.since or None,
        "perplexity": {"before": before, "after": after},
        "checkpoint": dict(run.checkpoint) if run.checkpoint else None,
        "nodes": [{"name": node, **asdict(part)} for node, part in run.parts.items()],
    }


def _node(
    name: str, health: Mapping[str, Any] | None, silent: str | None, runs: Sequence[RunSeen]
) -> dict[str, Any]:
    """Return one node; where it does not answer, without figures."""
    busy = [
        run.name
        for run in runs
        if name in run.parts and run.parts[name].state in ("waiting", "running")
    ]
    nothing = {"cores": None, "cpu_percent": None, "memory": None, "network": None}
    return {
        "name": name,
        "answers": silent is None,
        "why": silent,
        "run": busy[0] if busy else None,
        **nothing,
        "gpus": [],
        "gpu_trouble": None,
        **(health or {}),
    }
