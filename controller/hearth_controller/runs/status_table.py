"""The status as text: a table of runs, a table of nodes, and the problems. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.text import NOT_KNOWN, byte_count, duration, fitted, wrapped
from hearth.node.limit_cost import describe_limit
from hearth_controller.base.verdict import MARKS
from hearth_controller.runs.listing import local_time, number, progress
from hearth_controller.runs.observed import UNDER_WAY

MOST_RUNS = 8
"""Number of runs to show; active runs come first and are always included."""


def status_lines(status: Mapping[str, Any], columns: int) -> list[str]:
    """Return the lines for a status object from `hearth_controller.runs.status`."""
    nodes = status["nodes"]
    lines = [*_runs(status["runs"], columns), "", *fitted(node_rows(nodes), columns)]
    other = [f"{node['name']}: {run}" for node in nodes for run in node["other_runs"]]
    lines += _wrapped(other, columns)
    if gpus := gpu_rows(nodes):
        lines += ["", *fitted(gpus, columns), *_wrapped(_limits(nodes), columns)]
    mark = MARKS[status["verdict"]]
    reasons = [f"{mark} {reason}" for reason in status["reasons"] or ["all is well"]]
    return [*lines, "", *_wrapped(reasons, columns)]


def shown_runs(runs: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the first runs of a status, with all that are under way."""
    alive = sum(run["state"] in UNDER_WAY for run in runs)
    return runs[: max(MOST_RUNS, alive)]


def run_rows(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the titles of the table of runs, and a row for each of them."""
    rows = [("run", "state", "step", "loss", "tokens/s", "left", "checkpoint", "nodes")]
    for run in runs:
        left = run["eta_seconds"]
        rows.append(
            (
                run["name"],
                _state(run),
                progress(run["step"], run["steps"]),
                number(run["loss"], 3),
                number(run["tokens_per_second"], 0),
                NOT_KNOWN if left is None else duration(left),
                _checkpoint(run["checkpoint"]),
                ", ".join(_part(part, run) for part in run["nodes"]),
            )
        )
    return rows


def run_notes(run: Mapping[str, Any]) -> list[str]:
    """Return the lines below the row of a run: job, script, a long step, why it waits or ended."""
    return [note for note in (_job(run), _script(run), run.get("open_step"), run["why"]) if note]


def _wrapped(lines: Sequence[str], columns: int) -> list[str]:
    return [part for line in lines for part in wrapped(line, columns, "  ")]


def _runs(runs: Sequence[Mapping[str, Any]], columns: int) -> list[str]:
    """Return the table of runs with the notes of each below its row, or below a folded table."""
    if not runs:
        return ["there is no run yet"]
    shown = shown_runs(runs)
    lines = fitted(run_rows(shown), columns)
    if len(lines) == len(shown) + 1:
        for place, run in reversed(list(enumerate(shown, 1))):
            notes = [f"    {note}" for note in run_notes(run)]
            lines[place + 1 : place + 1] = _wrapped(notes, columns)
    else:
        notes = [f"{run['name']}: {note}" for run in shown for note in run_notes(run)]
        lines += _wrapped(notes, columns)
    older = len(runs) - len(shown)
    return [*lines, f"and {older} older: hearth runs"] if older else lines


def _state(run: Mapping[str, Any]) -> str:
    """Return the state, marked if a stop was requested: a second request ends the run at once."""
    stopping = run["stopping"] and run["state"] in UNDER_WAY
    return f"{run['state']}, stopping" if stopping else str(run["state"])


def _job(run: Mapping[str, Any]) -> str:
    """Return the Slurm job of a run that is waiting or running; a queued one has it as reason."""
    return f"Slurm job {run['job']}" if run["job"] and run["state"] in UNDER_WAY[:2] else ""


def _script(run: Mapping[str, Any]) -> str:
    """Return the state of a script run, whose steps cannot be counted; '' for other runs."""
    if not run["script"]:
        return ""
    return f"{run['script']}: {run['state']} since {local_time(run['since'] or '')}"


def _part(part: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """Return the name of a run's node, with its state if that is unusual."""
    name, state = part["name"], part["state"]
    if state in ("gone", "silent", "not asked", "unknown"):
        return f"{name} ({state})"
    # Its supervisor is there, and its ranks are not in the team.
    away = state == "away" or (run["state"] == "running" and name in run["missing"])
    return f"{name} (away)" if away else name


def _checkpoint(checkpoint: Mapping[str, Any] | None) -> str:
    if checkpoint is None:
        return NOT_KNOWN
    return f"step {checkpoint['step']}, {duration(checkpoint['age_seconds'])} ago"


def node_rows(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the titles of the table of nodes, and a row for each of them."""
    rows = [("node", "run", "CPU", "memory", "network", "GPU")]
    for node in nodes:
        if not node["answers"]:
            rows.append((node["name"], "does not answer", *[NOT_KNOWN] * 4))
            continue
        cpu = node["cpu_percent"]
        rows.append(
            (
                node["name"],
                node["run"] or NOT_KNOWN,
                NOT_KNOWN if cpu is None else f"{cpu:.0f}% of {node['cores']}",
                _memory(node["memory"]),
                _network(node["network"]),
                node["gpu_trouble"] or str(len(node["gpus"])),
            )
        )
    return rows


def gpu_rows(nodes: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the titles of the table of GPUs, and a row for each; empty if there is none."""
    rows = [("node", "GPU", "load", "memory", "temperature", "power", "throttled by")]
    for node in nodes:
        for gpu in node["gpus"]:
            throttled = gpu["throttled_by"]
            rows.append(
                (
                    node["name"],
                    f"{gpu['index']}: {gpu['name']}",
                    f"{number(gpu['load_percent'], 0)}%",
                    _memory(gpu),
                    f"{number(gpu['celsius'], 0)} °C",
                    _power(gpu),
                    NOT_KNOWN if throttled is None else ", ".join(throttled) or "nothing",
                )
            )
    return rows if len(rows) > 1 else []


def _power(gpu: Mapping[str, Any]) -> str:
    """Return the power that a GPU draws, its limit, and the default limit if that is another."""
    watts, limit, default = (
        number(gpu[name], 0) for name in ("watts", "watts_limit", "watts_default")
    )
    usual = "" if gpu["watts_default"] is None or default == limit else f" (default {default})"
    return f"{watts} of {limit} W{usual}"


def _limits(nodes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line for each GPU on what its limit costs in speed, where that was measured."""
    return [
        f"{node['name']}: GPU {gpu['index']} is held to "
        + describe_limit(gpu["watts_limit"], gpu["watts_default"], **gpu["limit_cost"])
        for node in nodes
        for gpu in node["gpus"]
        if gpu["limit_cost"] and gpu["watts_default"] is not None
    ]


def _memory(memory: Mapping[str, Any] | None) -> str:
    if memory is None or memory["used_mib"] is None or memory["total_mib"] is None:
        return NOT_KNOWN
    used, total = (memory[name] / 1024 for name in ("used_mib", "total_mib"))
    return f"{used:.1f} of {total:.1f} GB"


def _network(network: Mapping[str, Any] | None) -> str:
    if network is None:
        return NOT_KNOWN
    received, sent = (byte_count(network[way]) for way in ("received", "sent"))
    return f"{network['interface']} ↓ {received}/s ↑ {sent}/s"
