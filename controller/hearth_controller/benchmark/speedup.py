"""Speed-up and efficiency of each configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from hearth_controller.benchmark.results import Benchmark, Configuration, Timing


@dataclass(frozen=True)
class Row:
    """The results of a configuration; a value is None if one that it depends on is missing.

    Attributes:
        speeds: Tokens/s of each of its runs.
        seconds: Duration of the counted steps, the median of the runs.
        failure: Error message of a failed run.
        sum_alone: Sum of its nodes' tokens/s alone; None for a single node.
        speed_up: Ratio to the speed of the fastest of all nodes alone.
        of_sum: Ratio to `sum_alone`.
        of_fastest: Ratio to as many nodes as fast as the fastest one in it.
    """

    nodes: Configuration
    speeds: tuple[float, ...]
    seconds: float | None
    failure: str | None
    sum_alone: float | None
    speed_up: float | None
    of_sum: float | None
    of_fastest: float | None

    @property
    def speed(self) -> float | None:
        """The median of its runs, tokens/s."""
        return median(self.speeds) if self.speeds else None

    @property
    def spread(self) -> float | None:
        """Range of its runs relative to their median; None for fewer than two runs."""
        if len(self.speeds) < 2:
            return None
        return (max(self.speeds) - min(self.speeds)) / median(self.speeds)


def rows(benchmark: Benchmark) -> list[Row]:
    """Return a row for each tried configuration: nodes alone, then together."""
    tried = sorted(dict.fromkeys(run.nodes for run in benchmark.runs), key=lambda one: len(one) > 1)
    alone = {
        each[0]: median(timing.tokens_per_second for timing in whole)
        for each in tried
        if len(each) == 1 and (whole := _timings(benchmark, each))
    }
    return [_row(benchmark, each, alone) for each in tried]


def together(found: list[Row]) -> Row | None:
    """Return the row with the most nodes together, or None if no nodes trained together."""
    fitting = [row for row in found if len(row.nodes) > 1 and row.speeds]
    return max(fitting, key=lambda row: len(row.nodes), default=None)


def _timings(benchmark: Benchmark, nodes: Configuration) -> list[Timing]:
    return [run.timing for run in benchmark.runs if run.nodes == nodes and run.timing]


def _row(benchmark: Benchmark, nodes: Configuration, alone: Mapping[str, float]) -> Row:
    """Return the row of a configuration; `alone` holds the speed of each node alone."""
    runs = _timings(benchmark, nodes)
    failures = (run.failure for run in benchmark.runs if run.nodes == nodes and run.failure)
    own = [alone[node] for node in nodes if node in alone]
    several = len(nodes) > 1 and len(own) == len(nodes)
    speed = median(each.tokens_per_second for each in runs) if runs else None
    return Row(
        nodes=nodes,
        speeds=tuple(each.tokens_per_second for each in runs),
        seconds=median(each.seconds for each in runs) if runs else None,
        failure=next(failures, None),
        sum_alone=sum(own) if several else None,
        speed_up=speed / max(alone.values()) if speed and alone else None,
        of_sum=speed / sum(own) if speed and several else None,
        of_fastest=speed / (len(nodes) * max(own)) if speed and several else None,
    )
