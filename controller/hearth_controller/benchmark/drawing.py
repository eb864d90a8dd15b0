"""A benchmark as a picture: tokens per second of each configuration, in light and dark colours."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from hearth_controller.benchmark.results import Benchmark
from hearth_controller.benchmark.speedup import Row, rows
from hearth_controller.benchmark.text import title
from hearth_controller.report.palette import ALARM, FAINT, INK, colours_of
from hearth_controller.report.svg import WIDTHS, as_svg, drawing, standing_alone

_THICK = 0.6


def picture(benchmark: Benchmark) -> str:
    """Draw the benchmark and return the SVG text."""
    found, nodes = rows(benchmark), benchmark.asked.nodes
    width = WIDTHS[0]
    with drawing(width, 100 + 38 * len(found)) as figure:
        panel = figure.subplots()
        panel.set_title(f"{benchmark.asked.model}: tokens a second, {benchmark.began[:10]}")
        _bars(panel, found, nodes)
        panel.set_xlabel(_legend(benchmark))
        words = "Tokens a second of each node alone and of several together"
        return standing_alone(as_svg(figure, f"benchmark-{width.name}", words), width)


def _bars(panel: Axes, found: Sequence[Row], nodes: Sequence[str]) -> None:
    """Draw one bar per configuration, with each node's part in the node's colour."""
    colours = colours_of(nodes)
    ends = [max(row.sum_alone or 0, *row.speeds, 0) for row in found]
    longest = max(ends, default=0) or 1
    for place, (row, end) in enumerate(zip(found, ends, strict=True)):
        if row.speed is None:
            panel.text(longest / 100, place, "failed", va="center", color=ALARM)
            continue
        begin = 0.0
        for node, share in row.shares.items():
            panel.barh(place, row.speed * share, left=begin, color=colours[node], height=_THICK)
            begin += row.speed * share
        if row.sum_alone:
            panel.vlines(
                row.sum_alone, place - 0.42, place + 0.42, color=FAINT, linestyle=":", linewidth=1.6
            )
        if len(row.speeds) > 1:
            panel.plot(
                [min(row.speeds), max(row.speeds)],
                [place, place],
                color=INK,
                linewidth=1.2,
                marker="|",
                markersize=9,
            )
        of_sum = f", {row.of_sum:.0%} of the sum" if row.of_sum else ""
        panel.text(end + longest / 60, place, f"{row.speed:,.0f}{of_sum}", va="center", color=INK)
    panel.set_yticks(range(len(found)), [_short(title(row.configuration, nodes)) for row in found])
    panel.tick_params(axis="y", labelcolor=INK)
    panel.set_ylim(len(found) - 0.4, -0.6)
    panel.set_xlim(0, longest * 1.28)
    panel.grid(visible=False)
    panel.xaxis.set_major_locator(MaxNLocator(7, integer=True))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _legend(benchmark: Benchmark) -> str:
    """Return the legend."""
    words = ["each node in its colour"]
    if len(benchmark.asked.nodes) > 1:
        words.append("dotted: its nodes alone, added up")
    if benchmark.asked.repeat > 1:
        words.append(f"line: the least and the most of {benchmark.asked.repeat} runs")
    return "; ".join(words)


def _short(name: str) -> str:
    return name if len(name) <= 34 else f"{name[:33]}…"
