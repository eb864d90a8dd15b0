"""A benchmark as text: the announcement, a line per finished run, the table, and advice."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from hearth.base.text import NOT_KNOWN, aligned, duration
from hearth_controller.benchmark.results import Benchmark, Configuration
from hearth_controller.benchmark.speedup import Row, fastest_unit, rows, together
from hearth_controller.benchmark.turns import configurations, remaining, seconds_left
from hearth_controller.runs.energy import significant
from hearth_controller.runs.listing import number

_WIDTH = 96
_LEAST_TIMES = 1.1
"""Smallest speed-up that allows a noticeably larger step."""


def title(configuration: Configuration, nodes: Sequence[str]) -> str:
    """Return the title of a configuration in a cluster of these nodes."""
    first, *more = configuration.nodes
    if not more:
        return f"one {configuration.one} of {first}" if configuration.one else f"{first} alone"
    missing = [node for node in nodes if node not in configuration.nodes]
    return f"all but {', '.join(missing)}" if missing else "all together"


def announcement(benchmark: Benchmark) -> list[str]:
    """Return the announcement: the runs to make and their expected duration."""
    request, runs = benchmark.request, remaining(benchmark)
    if not runs:
        return [f"{benchmark.name} was interrupted when all its runs were done; here is the table."]
    several = f", {request.repeat} times" if request.repeat > 1 else ""
    titles = list(dict.fromkeys(title(each, request.nodes) for _, each in runs))
    notes = [
        f"{request.model}: {request.warm_up} steps to warm up and {request.steps} that count, "
        f"{request.settings['global_batch']} rows each"
        f"{several}: {'; '.join(titles)}",
    ]
    if benchmark.runs:
        done = len(benchmark.runs)
        notes.append(
            f"{benchmark.name} was interrupted and goes on: {done} of {done + len(runs)} runs are "
            "done"
        )
    if len(configurations(request.nodes, benchmark.circumstances.ranks)) == 1:
        notes.append(f"There is one node only, {request.nodes[0]}: nothing to compare it with.")
    seconds = seconds_left(benchmark)
    count = f"{len(runs)} run{'s' * (len(runs) > 1)}"
    if seconds is None:
        notes.append(
            f"{count}; how long they take is known after the first, which measures speeds as well"
        )
    else:
        notes.append(f"{count}, about {duration(seconds)}")
    return [*notes, "Ctrl-C ends it; the same command goes on where it was."]


def run_line(benchmark: Benchmark) -> str:
    """Return the line for the run that just ended."""
    last, nodes = benchmark.runs[-1], benchmark.request.nodes
    ahead = remaining(benchmark)
    every = {each.configuration for each in benchmark.runs} | {each for _, each in ahead}
    wide = max(len(title(each, nodes)) for each in every)
    done, seconds = len(benchmark.runs), seconds_left(benchmark)
    so_far = f"{done} of {done + len(ahead)}"
    if ahead and seconds is not None:
        so_far += f", about {duration(seconds)} left"
    name = f"{title(last.configuration, nodes):<{wide}}"
    if last.timing is None:
        first = (last.failure or "").partition("\n")[0]
        return f"{name}  FAILED: {first} ({so_far})"
    speed = f"{last.timing.tokens_per_second:.0f} tokens/s"
    return f"{name}  {speed}, {last.timing.steps} steps in {last.timing.seconds:.1f} s  ({so_far})"


def table(benchmark: Benchmark, price: float = 0.0) -> list[str]:
    """Return the table, one line per configuration, and notes that explain it.

    `price` is that of a kWh, 0 if it is not known.
    """
    nodes, found = benchmark.request.nodes, rows(benchmark)
    most, base = max((row.units for row in found), default=1), fastest_unit(benchmark)
    titles = ["", "runs", "time", "tokens/s", "spread", "speed-up"]
    if most > 1:
        titles += ["of the sum", "of as many like the fastest"]
    energy = []
    if any(row.per_million is not None for row in found):
        energy = ["Wh per M tokens", "cost per M tokens"][: 2 if price else 1]
    cells = [
        _cells(row, nodes)[: len(titles)] + _energy_cells(row, price)[: len(energy)]
        for row in found
    ]
    titles += energy
    lines = [line.rstrip() for line in aligned([titles, *cells])]
    over = f"Speed-up: over {title(base.configuration, nodes)}. " if base else ""
    notes = [f"{over}Spread: the least and the most of the runs."]
    if most > 1:
        each = "rank" if any(row.configuration.one for row in found) else "node"
        notes.append(
            f"Of the sum: of the speeds of its {each}s alone, added up. Of as many like the "
            f"fastest: of the same number of {each}s, each as fast as the fastest of them."
        )
        if each == "rank":
            notes.append("The ranks of a node count as each as fast as the one that ran alone.")
    if len(found) == len(nodes) == 1:
        notes = [f"There is one node only, {nodes[0]}: nothing to compare it with."]
    if energy:
        at = f", at {price:g} a kWh" if price else ""
        notes.append(
            f"Wh: of the graphics cards, or processors, that take part{at}; the rest of the "
            "computers is not in it."
        )
    return [*lines, "", *(line for text in notes for line in wrapped(text))]


def conclusion(benchmark: Benchmark, price: float = 0.0) -> list[str]:
    """Return the table and the advice.

    `price` is that of a kWh, 0 if it is not known.
    """
    best = together(rows(benchmark))
    lines = [
        f"{benchmark.name}, Hearth {benchmark.circumstances.hearth}",
        "",
        *table(benchmark, price),
        "",
        "Learning rate:",
    ]
    for text in advice(benchmark.request.settings, best.speed_up if best else None):
        lines += wrapped(text, "  ")
    return lines


def advice(settings: Mapping[str, Any], speed_up: float | None) -> list[str]:
    """Return advice on the learning rate, as paragraphs of one or two sentences.

    The number of nodes alone changes nothing: a step has `global_batch` rows on any nodes. Only a
    larger step needs another rate. Linear scaling with a warm-up was found for SGD (Goyal et al.
    2017); for adaptive optimizers such as AdamW, which Hearth uses, theory and measurements support
    the square root (Malladi et al. 2022; Krizhevsky 2014 derives it from the noise of the
    gradient). Either is a starting point, not a guarantee.
    """
    rows, rate = settings["global_batch"], settings["learning_rate"]
    larger = round(rows * (speed_up or 0))
    times = larger / rows
    lines = [
        f"A step has {rows} rows on any number of nodes (global_batch={rows}), and the result is "
        f"the same: learning_rate={rate:g} stays right."
    ]
    if times >= _LEAST_TIMES:
        lines += [
            f"To have larger steps instead of faster ones: global_batch={larger} takes as long "
            f"on all nodes as {rows} on the fastest alone. For {times:.2f} times the rows, "
            f"square-root scaling, which suits AdamW (Malladi et al. 2022, arXiv:2205.10287), "
            f"gives learning_rate={rate * math.sqrt(times):.2g}. Linear scaling, with a warm-up "
            f"(Goyal et al. 2017, arXiv:1706.02677), was found for SGD and gives "
            f"{rate * times:.2g}: for AdamW take it for an upper end."
        ]
    return lines


def wrapped(text: str, indent: str = "") -> list[str]:
    """Wrap a text into lines of readable length."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
    )


def _energy_cells(row: Row, price: float) -> list[str]:
    """Return a row's energy and its cost for a million tokens."""
    cost = row.per_million and row.per_million / 1000 * price
    return [NOT_KNOWN if each is None else significant(each) for each in (row.per_million, cost)]


def _cells(row: Row, nodes: Sequence[str]) -> list[str]:
    """Return the cells of a row."""
    several = len(row.speeds) > 1
    spread = f"{min(row.speeds):.0f} to {max(row.speeds):.0f}" if several else NOT_KNOWN
    return [
        title(row.configuration, nodes),
        str(len(row.speeds)) + (" (then failed)" if row.failure and row.speeds else ""),
        "failed" if row.seconds is None else f"{row.seconds:.1f} s",
        number(row.speed, 0),
        spread,
        number(row.speed_up, 2),
        number(row.of_sum, 2),
        number(row.of_fastest, 2),
    ]
