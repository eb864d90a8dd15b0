"""The figures of a report: SVG plots of a run's story."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from hearth.record.events import TeamEvent
from hearth.record.story import Story
from hearth.record.windows import Window, by_team, thinned, totals
from hearth_controller.report.svg import (
    ALARM,
    FAINT,
    GRID,
    HELD_OUT,
    INK,
    LOSS,
    PAPER,
    as_svg,
    colours_of,
    drawing,
)

_MOST_WINDOWS = 240
"""Maximum points of a curve; more cannot be distinguished on the page."""

_UNITS = ((2 * 3600, 3600, "hours"), (180, 60, "minutes"), (0, 1, "seconds"))
"""Units of a time axis: the shortest run that each suits, its length in seconds, and its name."""

_REST = 0.45
"""Opacity of a node's colour while it does not compute."""

_LONGEST = 30
"""Characters of a node's name; a longer one is cut."""

_MOST_NAMED = 8
"""Regroups up to which a figure names the nodes that left and joined; more would overlap."""

_NEAR_THE_END = 0.85
"""Part of an axis from which on a name stands before its line."""

_EVALUATIONS = {"markersize": 5, "clip_on": False, "zorder": 3}
_FEW = 20
"""Number of points below which a curve shows each of them."""


def learning(story: Story, width: int) -> str:
    """Draw loss and held-out perplexity over the steps, `width` pixels wide."""
    evaluations = [each for each in story.evaluations if each.perplexity is not None]
    windows = thinned(story.windows, _MOST_WINDOWS)
    with drawing(400 if evaluations else 240, width) as figure:
        count = 2 if evaluations else 1
        panels = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
        loss = [np.nan if each.loss is None else each.loss for each in windows]
        steps = [each.step for each in windows]
        dots = {"marker": "o", "markersize": 4} if len(steps) < _FEW else {}
        judged = [each for each in evaluations if each.reward_accuracy is not None]
        panels[0].set_title("loss of preferences" if judged else "loss a token")
        panels[0].plot(steps, loss, color=LOSS, label="training", **dots)
        if held_out := [(each.step, each.loss) for each in evaluations if each.loss is not None]:
            points = zip(*held_out, strict=True)
            panels[0].plot(*points, "o--", color=HELD_OUT, label="held out", **_EVALUATIONS)
            panels[0].legend(
                loc="lower right",
                bbox_to_anchor=(1, 0.98),
                ncols=2,
                frameon=False,
                borderaxespad=0,
                handlelength=1.6,
            )
        if evaluations:
            panels[1].set_title(
                "held-out preferences judged rightly, %" if judged else "held-out perplexity"
            )
            values = [100 * each.reward_accuracy for each in judged]
            values = values or [each.perplexity for each in evaluations]
            places = [each.step for each in evaluations]
            panels[1].plot(places, values, "o--", color=HELD_OUT, **_EVALUATIONS)
            for number in {0, len(evaluations) - 1}:
                panels[1].annotate(
                    f"{values[number]:.2f}",
                    (places[number], values[number]),
                    xytext=(0, 7),
                    textcoords="offset points",
                    ha="left" if number == 0 else "right",
                )
            panels[1].set_ylim(bottom=0, top=105 if judged else max(values) * 1.2)
        for panel in panels:
            for launch in story.launches[1:]:
                panel.axvline(launch.step, color=ALARM, linestyle=":", linewidth=1.2)
            for team in story.teams:
                panel.axvline(team.step, color=_colour(team), linestyle="--", linewidth=1)
            panel.yaxis.set_major_locator(MaxNLocator(4))
        panels[-1].set_xlabel("step")
        panels[-1].xaxis.set_major_locator(MaxNLocator(_ticks(width), integer=True))
        panels[-1].set_xlim(0, max(1, story.step, *(each.step for each in evaluations)))
        _name_changes(panels[0], [(team.step, team) for team in story.teams])
        description = "Training loss, and held-out loss and perplexity, over the steps"
        return as_svg(figure, f"learning-{width}", description)


def timeline(story: Story, width: int) -> str:
    """Draw speed, share, memory, temperature and events over one time axis, `width` pixels wide.

    Temperature is drawn only if a node reported it.
    """
    colours = colours_of(story.nodes)
    unit, unit_name = next(unit for least, *unit in _UNITS if story.length >= least)
    windows = thinned(story.windows, _MOST_WINDOWS)
    warm = any(part.celsius is not None for each in windows for part in each.parts.values())
    with drawing(560 + 120 * warm, width) as figure:
        speed, share, memory, *temperature, events = figure.subplots(
            4 + warm, 1, sharex=True, height_ratios=[3, 2, 2, *[2] * warm, 1.5]
        )
        speed.set_title("tokens a second, by node")
        share.set_title("share of the rows")
        memory.set_title("most memory used by a rank until then, MiB")
        for own in by_team(windows):
            _work(speed, share, own, colours, unit)
            _curves(memory, "peak_memory_mib", own, colours, unit)
            for panel in temperature:
                _curves(panel, "celsius", own, colours, unit)
        speed.set_ylim(bottom=0)
        share.set_ylim(0, 1)
        share.yaxis.set_major_formatter(PercentFormatter(1))
        share.yaxis.set_major_locator(MaxNLocator(2))
        memory.set_ylim(bottom=0)
        for panel in temperature:
            panel.set_title("temperature of what computes, °C")
        for panel in (speed, memory, *temperature):
            # The highest tick is above all curves: the axis reaches as far as its ticks.
            panel.set_yticks(MaxNLocator(3, integer=True).tick_values(*panel.get_ylim()))
            panel.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        _events(events, story, unit)
        for panel in (speed, share, memory, *temperature):
            for launch in story.launches[1:]:
                panel.axvline(launch.at / unit, color=ALARM, linestyle=":", lw=1.2)
            for team in story.teams:
                panel.axvline(team.at / unit, color=_colour(team), linestyle="--", lw=1)
        events.set_xlabel(f"{unit_name} since the run began")
        events.xaxis.set_major_locator(MaxNLocator(_ticks(width)))
        events.set_xlim(0, max(story.length, 1e-3) / unit)
        _name_changes(speed, [(team.at / unit, team) for team in story.teams])
        description = (
            "Tokens a second, share of the rows and memory by node, and what happened, over time"
        )
        return as_svg(figure, f"timeline-{width}", description)


def waiting(story: Story, width: int) -> str:
    """Draw each node's computing and waiting time within a step, `width` pixels wide."""
    done = totals(story.windows)
    colours = colours_of(story.nodes)
    steps = {node: sum(each.steps for each in story.windows if node in each.parts) for node in done}
    with drawing(70 + 34 * len(done), width) as figure:
        panel = figure.subplots()
        longest = max(seconds / steps[node] for node, (_, seconds) in done.items())
        for place, (node, (part, seconds)) in enumerate(done.items()):
            computed, waited = part.compute_seconds / steps[node], part.wait_seconds / steps[node]
            rest = max(seconds / steps[node] - computed - waited, 0)
            panel.barh(place, computed, color=colours[node], height=0.6)
            panel.barh(place, waited, left=computed, color=colours[node], alpha=_REST, height=0.6)
            panel.barh(place, rest, left=computed + waited, color=GRID, height=0.6)
            whole = computed + waited + rest
            share = f"{computed / whole:.0%}"
            panel.text(whole + longest / 60, place, share, va="center", color=INK)
        panel.set_yticks(range(len(done)), [_cut(node) for node in done])
        panel.tick_params(axis="y", labelcolor=INK)
        panel.invert_yaxis()
        panel.grid(visible=False)
        panel.set_xlim(0, longest * 1.07)
        panel.set_xlabel("seconds a step; the part that it computed")
        panel.xaxis.set_major_locator(MaxNLocator(_ticks(width)))
        description = "Seconds of a mean step that each node computed, waited, and did all else"
        return as_svg(figure, f"waiting-{width}", description)


def _ticks(width: int) -> int:
    """Return the number of labels that fit below a figure of this width."""
    return max(4, width // 100)


def _work(
    speed: Axes, share: Axes, windows: Sequence[Window], colours: dict[str, str], unit: int
) -> None:
    """Draw the work of the nodes in one team; the width of a window is its duration."""
    nodes, times = _nodes_of(windows, colours), _edges(windows, unit)
    shades = [colours[node] for node in nodes]
    tokens = [
        _stairs([_number(each, node, "tokens") / each.seconds for each in windows])
        for node in nodes
    ]
    speed.stackplot(times, tokens, colors=shades, step="pre", linewidth=0)
    whole = [sum(part.rows for part in each.parts.values()) for each in windows]
    rows = [
        _stairs(
            [_number(each, node, "rows") / most for each, most in zip(windows, whole, strict=True)]
        )
        for node in nodes
    ]
    share.stackplot(times, rows, colors=shades, step="pre", linewidth=0)


def _curves(
    panel: Axes, name: str, windows: Sequence[Window], colours: dict[str, str], unit: int
) -> None:
    """Draw an attribute of the nodes' work in one team, as far as they reported it."""
    times = _edges(windows, unit)
    for node in _nodes_of(windows, colours):
        reported = [getattr(each.parts.get(node), name, None) for each in windows]
        values = [np.nan if each is None else each for each in reported]
        panel.plot(times, _stairs(values), color=colours[node], drawstyle="steps-pre")


def _nodes_of(windows: Sequence[Window], colours: dict[str, str]) -> list[str]:
    """Return the nodes that took part in any of these windows, in order of rank."""
    return [node for node in colours if any(node in each.parts for each in windows)]


def _number(window: Window, node: str, name: str) -> float:
    """Return an attribute of a node's work in a window; 0 for a node that was away."""
    return getattr(window.parts.get(node), name, 0)


def _colour(team: TeamEvent) -> str:
    """Return the colour of the line for the start of a team."""
    return ALARM if team.left else FAINT


def _name_changes(panel: Axes, places: Sequence[tuple[float, TeamEvent]]) -> None:
    """Name the nodes that left and joined beside the lines of their teams, if they are few."""
    if len(places) > _MOST_NAMED:
        return
    end = panel.get_xlim()[1]
    for number, (place, team) in enumerate(places):
        before = place > _NEAR_THE_END * end
        changes = [
            f"{_cut(node)} {what}"
            for what, nodes in (("left", team.left), ("joined", team.joined))
            for node in nodes
        ]
        panel.annotate(
            ", ".join(changes),
            (place, 1),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if before else 3, -3 - 11 * (number % 3)),
            textcoords="offset points",
            color=_colour(team),
            fontsize=9,
            bbox={"facecolor": PAPER, "alpha": 0.75, "linewidth": 0, "pad": 0.5},
            ha="right" if before else "left",
            va="top",
        )


def _cut(node: str) -> str:
    """Return the name of a node, cut if it is long."""
    return node if len(node) <= _LONGEST else f"{node[: _LONGEST - 1]}…"


def _edges(windows: Sequence[Window], unit: int) -> list[float]:
    """Return the start of the first window and the end of each window, in units of seconds."""
    times = [windows[0].ended - windows[0].seconds, *(each.ended for each in windows)]
    return [max(time, 0) / unit for time in times]


def _stairs(numbers: list[float]) -> list[float]:
    """Return a value per edge for a step plot: each applies from the edge before."""
    return [numbers[0], *numbers]


def _events(panel: Axes, story: Story, unit: int) -> None:
    """Draw one lane each for launches, checkpoints, changes of the split and evaluations.

    Regroups and skipped steps have one if there were any.
    """
    lanes = ["launch", "checkpoint", "new split", "judged"]
    for number, launch in enumerate(story.launches):
        ends = [each.ended for each in story.windows if each.launch == number]
        last = number == len(story.launches) - 1
        until = story.length if last else max(ends, default=launch.at)
        span = (launch.at / unit, max(until - launch.at, 0) / unit)
        panel.broken_barh([span], (-0.3, 0.6), color=FAINT, alpha=_REST)
        if number:
            panel.plot(span[0], 0, "|", color=ALARM, markersize=11, markeredgewidth=2.2)
    for lane, marks in enumerate((story.checkpoints, story.replans, story.evaluations), 1):
        times = [mark.at / unit for mark in marks]
        panel.plot(times, [lane] * len(times), "|", color=INK, markersize=8, markeredgewidth=1.4)
    if story.teams:
        for team in story.teams:
            for shape, nodes, colour in (("v", team.left, ALARM), ("^", team.joined, INK)):
                if nodes:
                    panel.plot(team.at / unit, len(lanes), shape, color=colour, markersize=6)
        lanes.append("left, joined")
    if story.skips:
        times = [mark.at / unit for mark in story.skips]
        panel.plot(times, [len(lanes)] * len(times), "x", color=ALARM, markersize=6)
        lanes.append("not finite")
    panel.set_ylim(len(lanes) - 0.5, -0.5)
    panel.set_yticks(range(len(lanes)), lanes)
    panel.tick_params(axis="y", labelcolor=INK, labelsize=11)
    panel.grid(visible=False)
