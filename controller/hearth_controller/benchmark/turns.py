"""The order of a benchmark's runs, and an estimate of the time left."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean

from hearth_controller.benchmark.results import Benchmark, Configuration, Ranks


def configurations(
    nodes: Sequence[str], ranks: Mapping[str, Ranks], failed: Collection[str] = ()
) -> list[Configuration]:
    """Return the configurations of one turn, without nodes that `failed`.

    One rank of each node that has several, then each node alone, then all together.
    """
    able = tuple(node for node in nodes if node not in failed)
    several = [node for node in able if node in ranks and ranks[node].count > 1]
    return [
        *(Configuration((node,), ranks[node].kind) for node in several),
        *(Configuration((node,)) for node in able),
        *([Configuration(able)] if len(able) > 1 else []),
    ]


def remaining(benchmark: Benchmark) -> list[tuple[int, Configuration]]:
    """Return the remaining runs with their turns, in order.

    Turns follow each other, so that a warming machine or a busy evening affects all configurations
    alike. A configuration that failed is not tried again.
    """
    request = benchmark.request
    failed = {run.configuration: run.turn for run in benchmark.runs if run.failure}
    # One rank may lack the memory that all ranks of its node have: then the node goes on.
    since = {
        each.nodes[0]: turn
        for each, turn in failed.items()
        if len(each.nodes) == 1 and not each.one
    }
    done = {(run.turn, run.configuration) for run in benchmark.runs}
    return [
        (turn, each)
        for turn in range(request.repeat)
        # Turns before the node failed alone included it and are complete.
        for each in configurations(
            request.nodes,
            benchmark.circumstances.ranks,
            {node for node, failing in since.items() if failing <= turn},
        )
        if (turn, each) not in done and each not in failed
    ]


def seconds_left(benchmark: Benchmark) -> float | None:
    """Estimate the duration of the remaining runs in seconds; None without any timing.

    A configuration without runs counts as the mean of the others.
    """
    known: dict[Configuration, list[float]] = {}
    for run in benchmark.runs:
        if run.timing:
            known.setdefault(run.configuration, []).append(run.timing.whole_seconds)
    if not known:
        return None
    mean = fmean(itertools.chain.from_iterable(known.values()))
    return sum(fmean(known.get(each, [mean])) for _, each in remaining(benchmark))
