"""The current state of runs and nodes as one machine-readable object with a verdict. Pure.

The schema of the object is `docs/status.schema.json`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hearth.supervisor.open_step import describe_open_step, waits_for_slow_link
from hearth_controller.base.other_runs import describe_other_run
from hearth_controller.base.verdict import Verdict, overall
from hearth_controller.runs.energy import cost_of
from hearth_controller.runs.listing import in_queue
from hearth_controller.runs.observed import ObservedRun

NO_NVIDIA_SMI = "no nvidia-smi"
"""The answer of `hearth_examine` for a node without the driver's tool."""

# A busy GPU reaches its power limit every day; the other throttle reasons indicate a problem.
_HARMLESS = frozenset({"power limit"})


def status(
    runs: Sequence[ObservedRun],
    health: Mapping[str, Mapping[str, Any] | None],
    silent: Mapping[str, str],
    time: str,
    electricity_price: float = 0.0,
    damaged: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the status object.

    `runs` are the known runs in the order of `observed_runs`; `health` is the result of
    `hearth_examine` by node, None if there is none; `silent` holds the reasons why nodes do not
    answer; `time` is now (ISO 8601); `electricity_price` is that of a kWh, 0 if it is not known;
    `damaged` names the runs with damaged files.
    """
    places = {run.name: place for place, run in enumerate(in_queue(runs), 1)}
    entries = [entry_of(run, places.get(run.name), electricity_price) for run in runs]
    nodes = [_node(name, health[name], silent.get(name), runs) for name in health]
    verdict, reasons = judge(runs, nodes, damaged)
    return {"time": time, "verdict": verdict, "reasons": reasons, "runs": entries, "nodes": nodes}


def judge(
    runs: Sequence[ObservedRun], nodes: Sequence[Mapping[str, Any]], damaged: Sequence[str] = ()
) -> tuple[Verdict, list[str]]:
    """Return the overall verdict and the reasons why it is not good.

    Broken: the newest run failed or was lost, or no node answers. Degraded: a run waits for a node
    or continues without one, unless the owner has it; its nodes do not reach each other, or a link
    holds it up; a node does not answer, or a GPU is throttled or not visible to its driver; a run's
    files are damaged. The outcomes of earlier runs do not count.
    """
    broken = [f"{run.name} {_ENDED[run.state]}" for run in runs[:1] if run.state in _ENDED]
    degraded = []
    for run in runs:
        if (
            run.state != "queued"
            and run.alive
            and (run.trouble or any(part.vanished for part in run.parts.values()))
        ):
            degraded.append(f"{run.name} is {run.state}: {run.why}")
        elif run.alive and (
            run.unreached or (run.state == "running" and (run.missing or run.story.disks))
        ):
            degraded.append(f"{run.name} {run.why}")
        if run.state == "running" and (links := run.story.slow_links):
            degraded += [f"{run.name}: {links.text}", f"{run.name}: {links.advised}"]
        elif run.state == "running" and waits_for_slow_link(run.open_step):
            degraded.append(f"{run.name}: {describe_open_step(run.open_step)}")
    silent = [
        f"{node['name']} does not answer: {node['why'].partition(chr(10))[0]}"
        for node in nodes
        if not node["answers"]
    ]
    if nodes and len(silent) == len(nodes):
        broken += ["no node answers", *silent]
    else:
        degraded += silent
    for node in nodes:
        degraded += [f"{node['name']}: {trouble}" for trouble in _gpu_troubles(node)]
    degraded += damaged
    return overall(broken, degraded), broken + degraded


_ENDED = {"failed": "failed", "lost": "was lost with a node"}


def _gpu_troubles(node: Mapping[str, Any]) -> list[str]:
    """Return the problems of a node's GPUs; having no GPU is not one."""
    found = []
    if node["gpu_trouble"] and node["gpu_trouble"] != NO_NVIDIA_SMI:
        found.append(node["gpu_trouble"])
    for gpu in node["gpus"]:
        bad = [word for word in gpu["throttled_by"] or [] if word not in _HARMLESS]
        if bad:
            found.append(f"GPU {gpu['index']} ({gpu['name']}) is throttled: {', '.join(bad)}")
    return found


def entry_of(
    run: ObservedRun, place: int | None = None, electricity_price: float = 0.0
) -> dict[str, Any]:
    """Return the entry of one run, with its `place` in the queue."""
    before, after = run.story.perplexity
    return {
        "name": run.name,
        "state": run.state,
        "why": run.why,
        "open_step": describe_open_step(run.open_step) or None,
        "missing": list(run.missing),
        "away": list(run.away),
        "team": run.team,
        "regroups": run.regroups,
        "stopping": run.stopping,
        "job": run.job or None,
        "place": place,
        "starts": run.starts_at if place else None,
        "model": run.model,
        "script": run.program,
        "step": run.story.step,
        "steps": run.story.steps or None,
        "loss": run.story.loss,
        "tokens_per_second": run.tokens_per_second,
        "eta_seconds": run.eta_seconds,
        "seconds": run.seconds,
        "begun": run.begun or None,
        "since": run.since or None,
        "energy_joules": run.joules,
        "energy_cost": cost_of(run.joules, electricity_price),
        "watt_hours_per_million_tokens": run.watt_hours_per_million,
        "perplexity": {"before": before, "after": after},
        "checkpoint": dict(run.checkpoint) if run.checkpoint else None,
        "nodes": [{"name": node, **asdict(part)} for node, part in run.parts.items()],
    }


def _node(
    name: str, health: Mapping[str, Any] | None, silent: str | None, runs: Sequence[ObservedRun]
) -> dict[str, Any]:
    """Return the entry of one node, without measurements if it does not answer."""
    busy = [
        run.name
        for run in runs
        if name in run.parts and run.parts[name].state in ("waiting", "running", "away")
    ]
    nothing = {"cores": None, "cpu_percent": None, "memory": None, "network": None}
    others = (health or {}).get("other_runs") or ()
    return {
        "name": name,
        "answers": silent is None,
        "why": silent,
        "run": busy[0] if busy else None,
        **nothing,
        "gpus": [],
        "gpu_trouble": None,
        **(health or {}),
        "other_runs": [describe_other_run(each) for each in others],
    }
