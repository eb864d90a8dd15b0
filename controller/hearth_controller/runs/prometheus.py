"""The status in Prometheus' text format, version 0.0.4. Pure.

The format is written here and not by prometheus_client: it has two lines for a metric and one for
each value, and every node that trains would carry the package's pins for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from hearth_controller.base.verdict import EXIT
from hearth_controller.runs.status_table import shown_runs

Entry = Mapping[str, Any]
Number = Callable[[Entry], float | None]
Value = tuple[Mapping[str, Any], float | None]
"""The labels of a value, and the value; None if it is not known."""

_MIB = 1 << 20
_STATES = ("queued", "waiting", "running", "finished", "stopped", "failed", "lost")


def exposition(status: Mapping[str, Any]) -> list[str]:
    """Return the lines for a status object from `hearth_controller.runs.status`.

    They hold the runs of the table. A value that is not known has no line.
    """
    lines: list[str] = []
    for name, about, values in _metrics(status):
        known = [(labels, value) for labels, value in values if value is not None]
        if known:
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP hearth_{name} {about}", f"# TYPE hearth_{name} {kind}"]
            lines += [f"hearth_{name}{_labels(labels)} {value}" for labels, value in known]
    return lines


def _metrics(status: Mapping[str, Any]) -> Iterator[tuple[str, str, Iterable[Value]]]:
    """Yield name, description and values of each metric."""
    yield "verdict", "0 good, 1 degraded, 3 broken.", [({}, EXIT[status["verdict"]])]
    at = datetime.fromisoformat(status["time"]).timestamp()
    yield "time_seconds", "When this was measured, in seconds since 1970.", [({}, at)]

    runs = shown_runs(status["runs"])
    for name, about, of_run in _OF_RUN:
        yield f"run_{name}", about, [({"run": run["name"]}, of_run(run)) for run in runs]
    yield (
        "run_state",
        "1 for the state that the run is in.",
        [
            ({"run": run["name"], "state": state}, int(state == run["state"]))
            for run in runs
            for state in _STATES
        ],
    )
    yield (
        "run_perplexity",
        "Held-out perplexity, before and after training.",
        [
            ({"run": run["name"], "when": when}, value)
            for run in runs
            for when, value in run["perplexity"].items()
        ],
    )
    yield (
        "run_node_silent_seconds",
        "Since the last sign of life of the run's supervisor on the node.",
        [
            ({"run": run["name"], "node": part["name"]}, part["silent_seconds"])
            for run in runs
            for part in run["nodes"]
        ],
    )

    nodes = status["nodes"]
    for name, about, of_node in _OF_NODE:
        yield f"node_{name}", about, [({"node": node["name"]}, of_node(node)) for node in nodes]
    gpus = [
        ({"node": node["name"], "gpu": gpu["index"], "name": gpu["name"]}, gpu)
        for node in nodes
        for gpu in node["gpus"]
    ]
    for name, about, of_gpu in _OF_GPU:
        yield f"gpu_{name}", about, [(labels, of_gpu(gpu)) for labels, gpu in gpus]
    yield (
        "gpu_throttled",
        "1 for each reason that holds the GPU's clocks back.",
        [
            (labels | {"reason": each}, 1)
            for labels, gpu in gpus
            for each in gpu["throttled_by"] or ()
        ],
    )


def _of(*path: str, times: float = 1) -> Number:
    """Return a function that finds the number at `path` in an entry, None if something is."""

    def found(entry: Entry) -> float | None:
        value: Any = entry
        for name in path:
            value = None if value is None else value[name]
        return None if value is None else value * times

    return found


_OF_RUN: tuple[tuple[str, str, Number], ...] = (
    ("step", "Steps taken.", _of("step")),
    ("steps", "Steps of the whole run.", _of("steps")),
    ("loss", "Loss of the last step.", _of("loss")),
    ("tokens_per_second", "Of all nodes together, under way.", _of("tokens_per_second")),
    ("eta_seconds", "Time left.", _of("eta_seconds")),
    ("seconds", "Time that its launches took together.", _of("seconds")),
    ("energy_joules_total", "Of all nodes that measure theirs.", _of("energy_joules")),
    ("energy_cost_total", "At the electricity_price of the inventory.", _of("energy_cost")),
    (
        "watt_hours_per_million_tokens",
        "In the last steps on record, of all nodes together.",
        _of("watt_hours_per_million_tokens"),
    ),
    ("missing_nodes", "Nodes that a run under way is without.", lambda run: len(run["missing"])),
    ("away_nodes", "Nodes of the run that the owner has now.", lambda run: len(run["away"])),
    ("team_nodes", "Nodes that train together now.", lambda run: len(run["team"])),
    ("regroups_total", "How often nodes left or joined the team.", _of("regroups")),
    ("checkpoint_step", "Step of the newest checkpoint.", _of("checkpoint", "step")),
    ("checkpoint_age_seconds", "Age of the newest checkpoint.", _of("checkpoint", "age_seconds")),
)

_OF_NODE: tuple[tuple[str, str, Number], ...] = (
    ("up", "Whether the node answers.", lambda node: int(node["answers"])),
    ("busy", "Whether a run has the node.", lambda node: int(node["run"] is not None)),
    ("cores", "Processor cores.", _of("cores")),
    ("cpu_ratio", "Load of all cores, over a second.", _of("cpu_percent", times=0.01)),
    ("memory_used_bytes", "Memory in use.", _of("memory", "used_mib", times=_MIB)),
    ("memory_total_bytes", "Memory.", _of("memory", "total_mib", times=_MIB)),
    (
        "network_received_bytes_per_second",
        "By the interface that carries the cluster address.",
        _of("network", "received"),
    ),
    (
        "network_sent_bytes_per_second",
        "By the interface that carries the cluster address.",
        _of("network", "sent"),
    ),
)

_OF_GPU: tuple[tuple[str, str, Number], ...] = (
    ("load_ratio", "Load of the GPU.", _of("load_percent", times=0.01)),
    ("memory_used_bytes", "Memory in use.", _of("used_mib", times=_MIB)),
    ("memory_total_bytes", "Memory.", _of("total_mib", times=_MIB)),
    ("temperature_celsius", "Temperature.", _of("celsius")),
    ("power_watts", "Power drawn.", _of("watts")),
    ("power_limit_watts", "Limit on the power.", _of("watts_limit")),
    ("power_default_limit_watts", "Limit on the power by default.", _of("watts_default")),
)


def _labels(labels: Mapping[str, Any]) -> str:
    """Return labels as they follow the name of a metric."""
    parts = [f'{name}="{_escaped(str(value))}"' for name, value in labels.items()]
    return f"{{{','.join(parts)}}}" if parts else ""


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
