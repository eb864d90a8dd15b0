"""Speed-up and efficiency of each configuration.

The base of both is a unit that trained alone: one rank of a node that has several, or a whole node
if it has one rank or its single rank was not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from hearth_controller.benchmark.results import Benchmark, Configuration, Timing
from hearth_controller.runs.energy import watt_hours_per_million


@dataclass(frozen=True)
class Unit:
    """The configuration of a unit, its tokens/s, and the `count` of such units in its node."""

    configuration: Configuration
    speed: float
    count: int


@dataclass(frozen=True)
class Row:
    """The results of a configuration; a value is None if one that it depends on is missing.

    Attributes:
        speeds: Tokens/s of each of its runs.
        seconds: Duration of the counted steps, the median of the runs.
        failure: Error message of a failed run.
        units: Number of its units.
        sum_alone: Sum of its units' tokens/s alone; None for a single unit.
        speed_up: Ratio to the speed of the fastest of all units.
        of_sum: Ratio to `sum_alone`.
        of_fastest: Ratio to as many units as fast as the fastest one in it.
        per_million: Wh per million tokens, the median of the runs; None if a node is not measured.
    """

    configuration: Configuration
    speeds: tuple[float, ...]
    seconds: float | None
    failure: str | None
    units: int
    sum_alone: float | None
    speed_up: float | None
    of_sum: float | None
    of_fastest: float | None
    per_million: float | None

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
    """Return a row for each tried configuration: single ranks, nodes alone, then together."""
    tried = sorted(
        dict.fromkeys(run.configuration for run in benchmark.runs),
        key=lambda each: (each.one is None, len(each.nodes) > 1),
    )
    units = _units(benchmark)
    return [_row(benchmark, each, units) for each in tried]


def fastest_unit(benchmark: Benchmark) -> Unit | None:
    """Return the unit that every speed-up is over, or None if none was measured."""
    return max(_units(benchmark).values(), key=lambda unit: unit.speed, default=None)


def together(found: list[Row]) -> Row | None:
    """Return the row with the most units together, or None if none trained together."""
    fitting = [row for row in found if row.units > 1 and row.speeds]
    return max(fitting, key=lambda row: row.units, default=None)


def _units(benchmark: Benchmark) -> dict[str, Unit]:
    """Return the unit of each node that has a measured one."""
    units: dict[str, Unit] = {}
    for each in dict.fromkeys(run.configuration for run in benchmark.runs if run.timing):
        node = each.nodes[0]
        if len(each.nodes) == 1 and node not in units:  # a single rank runs before its node
            speed = median(timing.tokens_per_second for timing in _timings(benchmark, each))
            count = benchmark.circumstances.ranks[node].count if each.one else 1
            units[node] = Unit(each, speed, count)
    return units


def _timings(benchmark: Benchmark, configuration: Configuration) -> list[Timing]:
    return [
        run.timing for run in benchmark.runs if run.configuration == configuration and run.timing
    ]


def _row(benchmark: Benchmark, configuration: Configuration, units: Mapping[str, Unit]) -> Row:
    """Return the row of a configuration; `units` holds the unit of each node."""
    runs = _timings(benchmark, configuration)
    failures = (
        run.failure for run in benchmark.runs if run.configuration == configuration and run.failure
    )
    own = [units[node] for node in configuration.nodes if node in units]
    count = 1 if configuration.one else sum(unit.count for unit in own)
    several = count > 1 and len(own) == len(configuration.nodes)
    alone = sum(unit.count * unit.speed for unit in own)
    speed = median(each.tokens_per_second for each in runs) if runs else None
    used = [watt_hours_per_million(each.joules, each.tokens) for each in runs]
    return Row(
        configuration=configuration,
        speeds=tuple(each.tokens_per_second for each in runs),
        seconds=median(each.seconds for each in runs) if runs else None,
        failure=next(failures, None),
        units=count,
        sum_alone=alone if several else None,
        speed_up=speed / max(unit.speed for unit in units.values()) if speed and units else None,
        of_sum=speed / alone if speed and several else None,
        of_fastest=speed / (count * max(unit.speed for unit in own)) if speed and several else None,
        per_million=median(used) if used and None not in used else None,
    )
