"""Which nodes train next, and how long what is left will take."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from statistics import fmean

from hearth_controller.benchmark.results import Benchmark, Configuration


def configurations(
    nodes: Sequence[str], pairs: bool, failed: Sequence[str] = ()
) -> list[Configuration]:
    """Return what is measured in one turn: each node alone, then pairs, then all together.

    A node that has `failed` alone takes part in nothing further; two nodes are no pair beside all.
    """
    able = [node for node in nodes if node not in failed]
    found = [Configuration("alone", (node,)) for node in nodes]
    if pairs and len(able) > 2:
        found += [Configuration("pair", two) for two in itertools.combinations(able, 2)]
    if len(able) > 1:
        found.append(Configuration("together", tuple(able)))
    return found


def left(benchmark: Benchmark) -> list[tuple[int, Configuration]]:
    """Return the runs that are still to be made, with their turn, in their order.

    Turn after turn, so that a machine that grows warm, or a busy evening, meets all alike. What
    has failed once is not tried again.
    """
    asked = benchmark.asked
    failed = {ran.configuration for ran in benchmark.runs if ran.failure}
    since = {
        ran.configuration.nodes[0]: ran.turn
        for ran in benchmark.runs
        if ran.failure and ran.configuration.kind == "alone"
    }
    done = {(ran.turn, ran.configuration) for ran in benchmark.runs}
    return [
        (turn, each)
        for turn in range(asked.repeat)
        # The turns before a node failed alone were made with it, and are whole.
        for each in configurations(
            asked.nodes, asked.pairs, [node for node, failing in since.items() if failing <= turn]
        )
        if (turn, each) not in done and each not in failed
    ]


def seconds_left(benchmark: Benchmark, earlier: Benchmark | None) -> float | None:
    """Return about how long the runs that are left will take; None where nothing is known.

    By the runs of the same nodes in this benchmark, or in an `earlier` one of the same work; nodes
    that have not trained yet count like those that have.
    """
    known: dict[Configuration, list[float]] = {}
    for each in (earlier, benchmark):  # the later one counts
        known |= _whole_seconds(each) if each else {}
    if not known:
        return None
    mean = fmean(itertools.chain.from_iterable(known.values()))
    return sum(fmean(known.get(each, [mean])) for _, each in left(benchmark))


def _whole_seconds(benchmark: Benchmark) -> dict[Configuration, list[float]]:
    """Return how long the runs of each configuration took."""
    found: dict[Configuration, list[float]] = {}
    for ran in benchmark.runs:
        if ran.took:
            found.setdefault(ran.configuration, []).append(ran.took.whole_seconds)
    return found
