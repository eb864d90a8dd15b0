"""From the run that a person asked for to the runs of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth.config import Run
from hearth_controller.benchmark.results import Asked, Benchmark, Configuration

_OWN: Mapping[str, Any] = {
    "evaluate": False,
    "eval_every": None,
    "log_every": 1,
    "checkpoint_every": 1_000_000,
    "checkpoint_minutes": 0.0,
    "checkpoint_keep": 1,
    "wandb": "off",
}
"""Settings of every run of a benchmark: a step is measured, and nothing between two of them."""

_NOT_ITS_WORK = frozenset(
    {*_OWN, "run", "resume", "replay", "max_steps", "epochs", "wandb_project"}
)
"""Settings in which two benchmarks may differ and still ask for the same work."""

_REFUSED = {
    "run": "a benchmark names its runs by itself",
    "resume": "a benchmark begins its runs anew",
    "replay": "the plans of an earlier run fit its own ranks only, and a benchmark takes others",
    "max_steps": "-e benchmark_steps=NUMBER says how many steps count",
}


def unfit(run: Run, elastic: bool, warm_up: int, steps: int) -> list[str]:
    """Return what was asked for and cannot be of a benchmark, one sentence each.

    How long a run trains may stand in a settings file that is meant for train.yml.
    """
    findings = [
        f"{name}: {why}; leave it out"
        for name, why in _REFUSED.items()
        if (origin := run.origins.get(name, "default")) != "default"
        and not (name == "max_steps" and origin.startswith("file "))
    ]
    if not isinstance(run.settings.split, str):
        findings.append(
            "split: shares say what each rank of one cluster does, and a benchmark also trains on "
            "each node alone; take split=auto or split=equal"
        )
    every = run.settings.sync_every
    if warm_up % every or steps % every:
        findings.append(
            f"sync_every: the nodes exchange every {every} steps and only then tell of them; take "
            f"multiples of {every} for -e benchmark_warm_up and -e benchmark_steps"
        )
    if elastic:
        findings.append("-e elastic: a benchmark without one of its nodes is none; leave it out")
    return findings


def asked_of(
    run: Run, nodes: Sequence[str], warm_up: int, steps: int, repeat: int, pairs: bool
) -> Asked:
    """Return what a benchmark of a run over these nodes measures."""
    settings = run.settings.model_dump(mode="json", exclude=set(_NOT_ITS_WORK))
    return Asked(
        model=run.source.name,
        nodes=tuple(nodes),
        settings=settings | {"dataset_sha256": run.dataset_sha256},
        warm_up=warm_up,
        steps=steps,
        repeat=repeat,
        pairs=pairs,
    )


def run_name(benchmark: Benchmark) -> str:
    """Return the name of the run that is the latest attempt; it has 80 characters at most."""
    return f"benchmark-{benchmark.name}"[:74] + f"-{benchmark.attempts}"


def variables(
    benchmark: Benchmark,
    configuration: Configuration,
    typed: Mapping[str, Any],
    runs: str,
) -> dict[str, Any]:
    """Return what train.yml is given after `-e` for the latest attempt.

    `typed` was given to the benchmark and is an option of a role or a variable of one's own; `runs`
    is the folder of the controller that gets the run.
    """
    asked = benchmark.asked
    settings = {name: value for name, value in asked.settings.items() if name != "dataset_sha256"}
    steps = {"max_steps": asked.warm_up + asked.steps, "run": run_name(benchmark)}
    return {
        **typed,
        "train": {**settings, **_OWN, **steps},
        "nodes": ",".join(configuration.nodes),
        "plan_runs": runs,
        # Without one of its nodes a run measures something else.
        "launch_return_timeout": 0,
    }
