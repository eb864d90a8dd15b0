"""The order of a benchmark's runs, and an estimate of the time left."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean

from hearth_controller.benchmark.results import Benchmark, Configuration


def configurations(nodes: Sequence[str], failed: Sequence[str] = ()) -> list[Configuration]:
    """Return the configurations of one turn: each node alone, then all that have not `failed`."""
    able = tuple(node for node in nodes if node not in failed)
    return [*((node,) for node in nodes), *([able] if len(able) > 1 else [])]


def remaining(benchmark: Benchmark) -> list[tuple[int, Configuration]]:
    """Return the remaining runs with their turns, in order.

    Turns follow each other, so that a warming machine or a busy evening affects all configurations
    alike. A configuration that failed is not tried again.
    """
    request = benchmark.request
    failed = {run.nodes for run in benchmark.runs if run.failure}
    since = {
        run.nodes[0]: run.turn for run in benchmark.runs if run.failure and len(run.nodes) == 1
    }
    done = {(run.turn, run.nodes) for run in benchmark.runs}
    return [
        (turn, each)
        for turn in range(request.repeat)
        # Turns before the node failed alone included it and are complete.
        for each in configurations(
            request.nodes, [node for node, failing in since.items() if failing <= turn]
        )
        if (turn, each) not in done and each not in failed
    ]


def seconds_left(benchmark: Benchmark, earlier: Benchmark | None) -> float | None:
    """Estimate the duration of the remaining runs in seconds; None without any timing.

    The estimate uses runs of the same nodes in this benchmark, or in an `earlier` one of the same
    work. A configuration without runs counts as the mean of the others.
    """
    known: dict[Configuration, list[float]] = {}
    for each in (earlier, benchmark):  # the later one wins
        known |= _whole_seconds(each) if each else {}
    if not known:
        return None
    mean = fmean(itertools.chain.from_iterable(known.values()))
    return sum(fmean(known.get(each, [mean])) for _, each in remaining(benchmark))


def _whole_seconds(benchmark: Benchmark) -> dict[Configuration, list[float]]:
    """Return the durations of each configuration's runs in seconds."""
    found: dict[Configuration, list[float]] = {}
    for run in benchmark.runs:
        if run.timing:
            found.setdefault(run.nodes, []).append(run.timing.whole_seconds)
    return found
