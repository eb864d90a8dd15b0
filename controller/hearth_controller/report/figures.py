"""The figures of a report: SVG plots of a run's story, each drawn once per width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from hearth_controller.report.palette import ALARM, FAINT, GRID, HELD_OUT, INK, LOSS, colours_of
from hearth_controller.report.svg import WIDTHS, Width, as_svg, drawing
from hearth_controller.runs.story import Story
from hearth_controller.runs.windows import Window, thinned, totals

_MOST_WINDOWS = 240
"""Maximum points of a curve; more cannot be distinguished on the page."""

_UNITS = ((2 * 3600, 3600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))
_REST = 0.45
"""Opacity of a node's colour while it does not compute."""

_JUDGED = {"markersize": 5, "clip_on": False, "zorder": 3}


@dataclass(frozen=True)
class Clock:
    """The unit of a time axis, and its length in `seconds`."""

    seconds: int
    name: str

    @classmethod
    def of(cls, length: float) -> Clock:
        """Return a suitable unit for a run of `length` seconds."""
        return next(cls(seconds, name) for least, seconds, name in _UNITS if length >= least)


def learning(story: Story) -> list[str]:
    """Draw loss and held-out perplexity over the steps."""
    judged = [each for each in story.evaluations if each.perplexity is not None]
    words = "Training loss, and held-out loss and perplexity, over the steps"
    windows = thinned(story.windows, _MOST_WINDOWS)

    def draw(figure: Figure, width: Width) -> None:
        count = 2 if judged else 1
        panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
        loss = [np.nan if each.loss is None else each.loss for each in windows]
        steps = [each.step for each in windows]
        panels[0].set_title("loss a token")
        panels[0].plot(steps, loss, color=LOSS, label="training", **_dots(steps))
        if held_out := [(each.step, each.loss) for each in judged if each.loss is not None]:
            panels[0].plot(
                *zip(*held_out, strict=True), "o--", color=HELD_OUT, label="held out", **_JUDGED
            )
            _legend(panels[0], 2)
        if judged:
            panels[1].set_title("held-out perplexity")
            values = [each.perplexity for each in judged]
            panels[1].plot([each.step for each in judged], values, "o--", color=HELD_OUT, **_JUDGED)
            for place in {0, len(judged) - 1}:
                panels[1].annotate(
                    f"{values[place]:.2f}",
                    (judged[place].step, values[place]),
                    xytext=(0, 7),
                    textcoords="offset points",
                    ha="left" if place == 0 else "right",
                )
            panels[1].set_ylim(bottom=0, top=max(values) * 1.2)
        for panel in panels:
            for launch in story.launches[1:]:
                panel.axvline(launch.step, color=ALARM, linestyle=":", linewidth=1.2)
            panel.yaxis.set_major_locator(MaxNLocator(4))
        panels[-1].set_xlabel("step")
        panels[-1].xaxis.set_major_locator(MaxNLocator(5 if width.narrow else 9, integer=True))
        panels[-1].set_xlim(0, max(1, story.step, *(each.step for each in judged)))

    return _drawn("learning", words, draw, 400 if judged else 240)


def timeline(story: Story) -> list[str]:
    """Draw speed, share of the work, memory, temperature and events over the same time axis.

    Temperature is drawn only if a node reported it.
    """
    colours = colours_of(story.nodes)
    clock = Clock.of(story.length)
    words = "Tokens a second, share of the rows and memory by node, and what happened, over time"
    windows = thinned(story.windows, _MOST_WINDOWS)
    warm = any(part.celsius is not None for each in windows for part in each.parts.values())

    def draw(figure: Figure, width: Width) -> None:
        speed, share, memory, *between, events = figure.subplots(
            4 + warm, 1, sharex=True, height_ratios=[3, 2, 2, *[2] * warm, 1.5]
        )
        speed.set_title("tokens a second, by node")
        share.set_title("share of the rows")
        memory.set_title("most memory used by a rank until then, MiB")
        for number in range(len(story.launches)):
            own = [each for each in windows if each.launch == number]
            if own:
                _work(speed, share, memory, own, colours, clock)
                for heat in between:
                    _heat(heat, own, colours, clock)
        speed.set_ylim(bottom=0)
        share.set_ylim(0, 1)
        share.yaxis.set_major_formatter(PercentFormatter(1))
        share.yaxis.set_major_locator(MaxNLocator(2))
        memory.set_ylim(bottom=0)
        for heat in between:
            heat.set_title("temperature of what computes, °C")
        for panel in (speed, memory, *between):
            panel.yaxis.set_major_locator(MaxNLocator(3, integer=True))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        _happened(events, story, clock, width)
        for panel in (speed, share, memory, *between):
            for launch in story.launches[1:]:
                panel.axvline(launch.began / clock.seconds, color=ALARM, linestyle=":", lw=1.2)
        events.set_xlabel(f"{clock.name} since the run began")
        events.xaxis.set_major_locator(MaxNLocator(5 if width.narrow else 9))
        events.set_xlim(0, max(story.length, 1e-3) / clock.seconds)

    return _drawn("timeline", words, draw, 560 + 120 * warm)


def waiting(story: Story) -> list[str]:
    """Draw each node's computing and waiting time within a step."""
    done = totals(story.windows)
    colours = colours_of(story.nodes)
    steps = {node: sum(each.steps for each in story.windows if node in each.parts) for node in done}
    words = "Seconds of a mean step that each node computed, waited, and did all else"

    def draw(figure: Figure, width: Width) -> None:
        panel = figure.subplots()
        longest = max(seconds / steps[node] for node, (_, seconds) in done.items())
        for place, (node, (part, seconds)) in enumerate(done.items()):
            computed, waited = part.compute_seconds / steps[node], part.wait_seconds / steps[node]
            rest = max(seconds / steps[node] - computed - waited, 0)
            panel.barh(place, computed, color=colours[node], height=0.6)
            panel.barh(place, waited, left=computed, color=colours[node], alpha=_REST, height=0.6)
            panel.barh(place, rest, left=computed + waited, color=GRID, height=0.6)
            panel.text(
                computed + waited + rest + longest / 60,
                place,
                f"{computed / (computed + waited + rest):.0%}",
                va="center",
                color=INK,
            )
        panel.set_yticks(range(len(done)), [_short(node, width) for node in done])
        panel.tick_params(axis="y", labelcolor=INK)
        panel.invert_yaxis()
        panel.grid(visible=False)
        panel.set_xlim(0, longest * (1.16 if width.narrow else 1.07))
        panel.set_xlabel("seconds a step; the part that it computed")
        panel.xaxis.set_major_locator(MaxNLocator(4 if width.narrow else 8))

    return _drawn("waiting", words, draw, 70 + 34 * len(done))


def _drawn(name: str, words: str, draw: Callable[[Figure, Width], None], height: int) -> list[str]:
    """Return a figure of `height` CSS pixels as SVG, once for every width."""
    drawn = []
    for width in WIDTHS:
        with drawing(width, height) as figure:
            draw(figure, width)
            drawn.append(as_svg(figure, f"{name}-{width.name}", words))
    return drawn


def _work(
    speed: Axes,
    share: Axes,
    memory: Axes,
    windows: Sequence[Window],
    colours: dict[str, str],
    clock: Clock,
) -> None:
    """Draw the work of the nodes in one launch; the width of a window is its duration."""
    nodes, times = list(windows[0].parts), _edges(windows, clock)
    shades = [colours[node] for node in nodes]
    tokens = [
        _stairs([each.parts[node].tokens / each.seconds for each in windows]) for node in nodes
    ]
    speed.stackplot(times, tokens, colors=shades, step="pre", linewidth=0)
    whole = [sum(part.rows for part in each.parts.values()) for each in windows]
    rows = [
        _stairs([each.parts[node].rows / most for each, most in zip(windows, whole, strict=True)])
        for node in nodes
    ]
    share.stackplot(times, rows, colors=shades, step="pre", linewidth=0)
    for node in nodes:
        peaks = _stairs([each.parts[node].peak_memory_mib for each in windows])
        memory.plot(times, peaks, color=colours[node], drawstyle="steps-pre")


def _heat(panel: Axes, windows: Sequence[Window], colours: dict[str, str], clock: Clock) -> None:
    """Draw the temperatures of one launch, skipping nodes that did not report any."""
    for node in windows[0].parts:
        told = [each.parts[node].celsius for each in windows]
        heat = [np.nan if each is None else each for each in told]
        times = _edges(windows, clock)
        panel.plot(times, _stairs(heat), color=colours[node], drawstyle="steps-pre")


def _edges(windows: Sequence[Window], clock: Clock) -> list[float]:
    """Return the start of the first window and the end of each window."""
    times = [windows[0].ended - windows[0].seconds, *(each.ended for each in windows)]
    return [max(time, 0) / clock.seconds for time in times]


def _stairs(numbers: list[float]) -> list[float]:
    """Return a value per edge for a step plot, in which a value applies from the edge before."""
    return [numbers[0], *numbers]


def _happened(panel: Axes, story: Story, clock: Clock, width: Width) -> None:
    """Draw one lane each for launches, checkpoints, changes of the split and evaluations."""
    lanes = ["launch", "checkpoint", "new split", "judged"]
    for number, launch in enumerate(story.launches):
        ends = [each.ended for each in story.windows if each.launch == number]
        last = number == len(story.launches) - 1
        until = story.length if last else max(ends, default=launch.began)
        span = (launch.began / clock.seconds, max(until - launch.began, 0) / clock.seconds)
        panel.broken_barh([span], (-0.3, 0.6), color=FAINT, alpha=_REST)
        if number:
            panel.plot(span[0], 0, "|", color=ALARM, markersize=11, markeredgewidth=2.2)
    for lane, marks in enumerate((story.checkpoints, story.replans, story.evaluations), 1):
        times = [mark.at / clock.seconds for mark in marks]
        panel.plot(times, [lane] * len(times), "|", color=INK, markersize=8, markeredgewidth=1.4)
    if story.skips:
        lanes.append("not finite")
        times = [mark.at / clock.seconds for mark in story.skips]
        panel.plot(times, [4] * len(times), "x", color=ALARM, markersize=6)
    panel.set_ylim(len(lanes) - 0.5, -0.5)
    panel.set_yticks(range(len(lanes)), lanes)
    panel.tick_params(axis="y", labelcolor=INK, labelsize=10 if width.narrow else 11)
    panel.grid(visible=False)


def _legend(panel: Axes, columns: int) -> None:
    """Place a legend above the panel, at its right."""
    panel.legend(
        loc="lower right",
        bbox_to_anchor=(1, 0.98),
        ncols=columns,
        frameon=False,
        borderaxespad=0,
        handlelength=1.6,
    )


def _dots(points: Sequence[object]) -> dict[str, object]:
    """Return plot options that mark the points of a curve that has only a few."""
    return {"marker": "o", "markersize": 4} if len(points) < 20 else {}


def _short(name: str, width: Width) -> str:
    """Return a node's name, shortened on a narrow figure."""
    most = 12 if width.narrow else 30
    return name if len(name) <= most else f"{name[: most - 1]}…"
