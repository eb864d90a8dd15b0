"""Windows: the steps between two metrics lines, the work of each node in them, and their sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeWork:
    """The work of one node in a window.

    Attributes:
        tokens, rows: Sums over its ranks.
        compute_seconds, wait_seconds: Over all steps of the window, the mean of its ranks.
        peak_memory_mib: Peak memory of any of its ranks so far.
        celsius: Highest temperature of its ranks' devices after a step; None if unknown.
        joules: Energy; None if the node measures none.
    """

    tokens: float
    rows: int
    compute_seconds: float
    wait_seconds: float
    peak_memory_mib: float
    celsius: float | None
    joules: float | None


@dataclass(frozen=True)
class Window:
    """The steps between two metrics lines.

    Attributes:
        launch: Index of its launch in `Story.launches`.
        step: The last of its `steps`.
        ended: End in seconds since the run began.
        seconds: Duration of the steps, without evaluations and checkpoints between them.
        loss: Mean per token, None if not finite.
        parts: Work by node, without nodes that were away.
        team: Number of regroups of its launch before its end.
    """

    launch: int
    step: int
    steps: int
    ended: float
    seconds: float
    loss: float | None
    parts: Mapping[str, NodeWork]
    team: int = 0

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second of all nodes together."""
        return sum(part.tokens for part in self.parts.values()) / self.seconds


def thinned(windows: Sequence[Window], most: int) -> list[Window]:
    """Merge neighbouring windows of one team until about `most` windows are left."""
    every = -(-len(windows) // most) if windows else 1
    groups: list[list[Window]] = []
    for window in windows:
        same = groups and _team_of(groups[-1][0]) == _team_of(window)
        if same and len(groups[-1]) < every:
            groups[-1].append(window)
        else:
            groups.append([window])
    return [_together(group) for group in groups]


def by_team(windows: Iterable[Window]) -> list[list[Window]]:
    """Return the windows of each team, in the order of training."""
    return [list(group) for _, group in itertools.groupby(windows, _team_of)]


def _team_of(window: Window) -> tuple[int, int]:
    """Return the key of the team of a window."""
    return window.launch, window.team


def _together(windows: Sequence[Window]) -> Window:
    """Merge windows of one team."""
    last = windows[-1]
    nodes = dict.fromkeys(node for each in windows for node in each.parts)
    losses = [(each.loss, each.steps) for each in windows if each.loss is not None]
    steps = sum(count for _, count in losses)
    return Window(
        last.launch,
        last.step,
        sum(each.steps for each in windows),
        last.ended,
        sum(each.seconds for each in windows),
        sum(loss * count for loss, count in losses) / steps if steps else None,
        {
            node: _sum_of([each.parts[node] for each in windows if node in each.parts])
            for node in nodes
        },
        last.team,
    )


def _sum_of(parts: Sequence[NodeWork]) -> NodeWork:
    """Return the sum of a node's work in several windows."""
    return NodeWork(
        sum(part.tokens for part in parts),
        sum(part.rows for part in parts),
        sum(part.compute_seconds for part in parts),
        sum(part.wait_seconds for part in parts),
        max(part.peak_memory_mib for part in parts),
        warmest([part.celsius for part in parts]),
        sum_of_known([part.joules for part in parts]),
    )


def warmest(temperatures: Iterable[float | None]) -> float | None:
    """Return the highest of these temperatures, None if none is known."""
    return max((each for each in temperatures if each is not None), default=None)


def sum_of_known(numbers: Iterable[float | None]) -> float | None:
    """Return the sum of the known of these numbers, None if none is."""
    known = [each for each in numbers if each is not None]
    return sum(known) if known else None


def totals(windows: Iterable[Window]) -> dict[str, tuple[NodeWork, float]]:
    """Return each node's total work, and the seconds of the windows that it took part in."""
    parts: dict[str, list[NodeWork]] = {}
    seconds: dict[str, float] = {}
    for window in windows:
        for node, part in window.parts.items():
            parts.setdefault(node, []).append(part)
            seconds[node] = seconds.get(node, 0.0) + window.seconds
    return {node: (_sum_of(found), seconds[node]) for node, found in parts.items()}
