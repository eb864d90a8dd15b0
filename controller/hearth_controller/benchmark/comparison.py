"""Comparison with the previous benchmark: slower configurations and changed versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from hearth_controller.benchmark.results import Benchmark, Configuration
from hearth_controller.benchmark.speedup import Row, rows

SINGLE = 0.10
"""Assumed spread of a configuration that ran only once."""

LEAST = 0.02
"""Lower bound on the spread: a few runs can agree by chance."""


@dataclass(frozen=True)
class Comparison:
    """A configuration then and now in tokens/s; `spread` is the relative spread of its runs."""

    configuration: Configuration
    before: float
    now: float
    spread: float

    @property
    def part(self) -> float:
        """Relative change in speed, negative if it is slower."""
        return self.now / self.before - 1

    @property
    def significant(self) -> bool:
        """Whether the difference exceeds chance."""
        return abs(self.part) > self.spread


def last_comparable(benchmark: Benchmark, earlier: Sequence[Benchmark]) -> Benchmark | None:
    """Return the latest of the `earlier` benchmarks (oldest first) with the same work, or None."""
    comparable = [
        each
        for each in earlier
        if each.name != benchmark.name and each.request.same_work(benchmark.request)
    ]
    return comparable[-1] if comparable else None


def changes(before: Benchmark, now: Benchmark) -> list[Comparison]:
    """Return the change of each configuration that both benchmarks measured."""
    then = {row.configuration: row for row in rows(before) if row.speed}
    return [
        Comparison(each, then[each].speed, row.speed, _spread(then, row))
        for row in rows(now)
        if row.speed and (each := row.configuration) in then
    ]


def changed_versions(before: Benchmark, now: Benchmark) -> list[str]:
    """Return changes of Hearth, ranks, drivers, kernels and packages, one line each."""
    found = _differing("Hearth", before.circumstances.hearth, now.circumstances.hearth)
    ranks = [each.circumstances.ranks for each in (before, now)]
    for node in now.request.nodes:
        if all(node in each for each in ranks):  # older records have none
            found += _differing(f"{node}: ranks", *(str(each[node].count) for each in ranks))
        both = [_facts(each, node) for each in (before, now)]
        names = dict.fromkeys(chain.from_iterable(both))
        for name in names:
            found += _differing(f"{node}: {name}", *(each.get(name, "none") for each in both))
    return found


def _spread(then: dict[Configuration, Row], row: Row) -> float:
    """Return the spread of a configuration's runs, the larger one of both benchmarks."""
    spreads = [each.spread for each in (then[row.configuration], row)]
    return max(LEAST, *(SINGLE if each is None else each for each in spreads))


def _facts(benchmark: Benchmark, node: str) -> dict[str, str]:
    """Return driver and kernel of a node, and the package versions reported by its own run."""
    versions = next(
        (run.timing.versions for run in benchmark.runs if run.timing and run.nodes == (node,)), {}
    )
    return {**benchmark.circumstances.nodes.get(node, {}), **versions}


def _differing(what: str, before: str, now: str) -> list[str]:
    return [] if before == now else [f"{what} {before} → {now}"]
