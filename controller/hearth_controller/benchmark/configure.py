"""Conversion of a requested run into the runs of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hearth.config import Run
from hearth_controller.benchmark.results import Benchmark, BenchmarkRequest, Configuration

_OWN: Mapping[str, Any] = {
    "eval_held_out": False,
    "eval_every": None,
    "early_stop": None,
    "log_every": 1,
    "checkpoint_every": 1_000_000,
    "checkpoint_minutes": 0.0,
    "checkpoint_keep": 1,
    "wandb": "off",
    "eval": (),
    "eval_limit": None,
    "push": None,
    "copy_to": None,
}
"""Settings of every benchmark run: only steps are measured, and nothing happens between them, nor
after them."""

_NOT_ITS_WORK = frozenset(
    {*_OWN, "run", "resume", "replay", "max_steps", "epochs", "wandb_project"}
)
"""Settings in which two benchmarks of the same work may differ."""

_REFUSED = {
    "run": "a benchmark names its runs by itself",
    "resume": "a benchmark begins its runs anew",
    "replay": "the plans of an earlier run fit its own ranks only, and a benchmark takes others",
    "max_steps": "-e steps=NUMBER says how many steps count",
}


def objections(run: Run, warm_up: int, steps: int) -> list[str]:
    """Return requested settings that a benchmark cannot have, one sentence each.

    The length of a run is accepted from a settings file, which is meant for train.yml.
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
            f"sync_every: the nodes exchange every {every} steps and only then report them; take a "
            f"multiple of {every} for -e steps"
        )
    return findings


def request_from(
    run: Run, nodes: Sequence[str], warm_up: int, steps: int, repeat: int
) -> BenchmarkRequest:
    """Return the request for a benchmark of a run over these nodes.

    Its steps have the size of those on many data, whatever data it takes.
    """
    settings = run.settings.at_most().model_dump(mode="json", exclude=set(_NOT_ITS_WORK))
    return BenchmarkRequest(
        model=run.source.name,
        nodes=tuple(nodes),
        settings=settings | {"dataset_sha256": run.dataset_sha256},
        warm_up=warm_up,
        steps=steps,
        repeat=repeat,
    )


def run_name(benchmark: Benchmark) -> str:
    """Return the run name of the latest attempt (at most 80 characters)."""
    return f"benchmark-{benchmark.name}"[:74] + f"-{benchmark.attempts}"


def variables(
    benchmark: Benchmark,
    configuration: Configuration,
    typed: Mapping[str, Any],
    runs: str,
) -> dict[str, Any]:
    """Return the extra variables of train.yml for the latest attempt.

    `typed` are role options and the person's own variables, as given to the benchmark; `runs` is
    the controller's folder for the run.
    """
    request = benchmark.request
    settings = {name: value for name, value in request.settings.items() if name != "dataset_sha256"}
    steps = {"max_steps": request.warm_up + request.steps, "run": run_name(benchmark)}
    return {
        **typed,
        "train": {**settings, **_OWN, **steps},
        **({"hearth_nproc": 1} if configuration.one else {}),
        "nodes": ",".join(configuration.nodes),
        "_plan_runs": runs,
        # A run without one of its nodes would measure something else.
        "launch_return_timeout": 0,
        "lend": False,
        # Nobody wants a message for each of its runs.
        "hearth_notify": "",
    }
