"""The figures of a live view: of the run as a whole, and of each of its nodes. Pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from hearth.base.text import NOT_KNOWN, byte_count, duration, plain
from hearth.record.story import Story
from hearth.record.windows import warmest
from hearth.supervisor.open_step import describe_open_step
from hearth_controller.runs.listing import time_taken
from hearth_controller.watch.view import SILENT, RunView

TITLES = ("node", "rank", "state", "tokens/s", "share", "temp", "memory", "link")
GOOD, POOR = ("training", "trained", "finished", "evaluating"), ("left", "lost", "failed", "away")
"""States of a node that are as they should be, and those that need a look."""

_SECOND_COLUMN = re.compile(r" *(\S.*?)?  +(?=\S)")
"""What stands before the second column of a table."""


@dataclass(frozen=True)
class NodeRow:
    """A node in the table: its name and state, and the texts of its other columns."""

    name: str
    state: str
    cells: tuple[str, ...]
    silent: bool


def node_rows(view: RunView, health: Mapping[str, Mapping[str, Any]], now: float) -> list[NodeRow]:
    """Return the nodes in order of rank; `health` has entries of the status by node, if known."""
    window, rows = view.leader.story.window, []
    whole = sum(part.rows for part in window.parts.values()) if window else 0
    for rank, name in enumerate(view.names):
        part = window.parts.get(name) if window else None
        state, silent = view.state_of(name, now), view.silent(name, now)
        known = health.get(name, {})
        gpus = known.get("gpus") or []
        celsius = warmest([part.celsius if part else None, *(gpu["celsius"] for gpu in gpus)])
        cells = (
            str(rank),
            state,
            f"{part.tokens / window.seconds:,.0f}" if part else NOT_KNOWN,
            f"{part.rows / whole:.0%}" if part and whole else NOT_KNOWN,
            NOT_KNOWN if celsius is None else f"{celsius:.0f} °C",
            _memory(gpus, part.peak_memory_mib if part else None),
            f"silent {duration(silent)}" if silent > SILENT else _link(known.get("network")),
        )
        rows.append(NodeRow(name, state, cells, silent > SILENT))
    return rows


def figures(view: RunView) -> list[str]:
    """Return the figures of the whole run: loss, held-out loss, speed, learning rate."""
    story = view.leader.story
    losses = [each.loss for each in view.story.evaluations if each.loss is not None]
    speed, rate = story.window and story.window.tokens_per_second, story.learning_rate
    return [
        *([f"loss {story.loss:.3f}"] if story.loss is not None else []),
        *([f"held out {' → '.join(_ends(losses))}"] if losses else []),
        *([f"{speed:,.0f} tokens/s"] if speed else []),
        *([f"learning rate {rate:.3g}"] if rate is not None else []),
    ]


def step_text(view: RunView) -> str:
    """Return the steps that are done and the time left, or what the run does without steps."""
    story = view.leader.story
    if not story.window:
        return view.progress
    steps = f"step {story.step}/{story.steps}"
    if story.ended:
        return f"{steps} in {time_taken(story.length, story.seconds)}"
    if view.outcomes:
        return steps
    left = story.eta_seconds and f"{duration(story.eta_seconds)} left"
    old = describe_open_step((view.leader.current or {}).get("open_step"))
    slow = story.slow_links and story.slow_links.brief
    return " · ".join(filter(None, (steps, left, old, slow)))


def headline(view: RunView) -> str:
    """Return the state of the run in a few words, with the cause of an end or a wait."""
    record = view.leader.current or {}
    cause = record.get("cause") or {}
    why = plain(str(cause.get("message") or "")).partition("\n")[0]
    node = f"{cause.get('node')}: " if cause.get("node") else ""
    state = {"running": "training", "": "connecting"}.get(view.state, view.state)
    if view.state == "running" and view.leader.story.state:
        state = "trained, saving"
    return f"{state}: {node}{why}" if why and view.state != "running" else state


def happenings(story: Story) -> list[tuple[str, str, bool]]:
    """Return time of day, text and alarm of each event of a run, the newest first."""
    # Of two at the same time, the later one of the list is the newer one.
    found = sorted([*story.news, *story.replans], key=lambda each: each.at)[::-1]
    return [(_clock(story, each.at), plain(each.news), each.alarm) for each in found]


def _clock(story: Story, at: float) -> str:
    """Return the local time of day, `at` seconds after the run began; '' if that is unknown."""
    if story.began is None:
        return ""
    return (story.began + timedelta(seconds=at)).astimezone().strftime("%H:%M:%S")


def wrapped(lines: Sequence[str], columns: int) -> list[str]:
    """Wrap the lines of a table with two columns, the second one below itself."""
    found = []
    for line in lines:
        below = _SECOND_COLUMN.match(line)
        indent = min(below.end() if below else 0, columns // 2)
        found += textwrap.wrap(line, max(columns, 20), subsequent_indent=" " * indent) or [""]
    return found


def _ends(losses: list[float]) -> list[str]:
    """Return the first and the last of these losses."""
    return [f"{loss:.3f}" for loss in (losses if len(losses) < 2 else (losses[0], losses[-1]))]


def _memory(gpus: list[Mapping[str, Any]], peak: float | None) -> str:
    """Return the memory in use of the graphics cards, or the most that a rank has used."""
    sizes = [(gpu["used_mib"], gpu["total_mib"]) for gpu in gpus]
    if sizes and all(None not in size for size in sizes):
        used, total = (sum(column) / 1024 for column in zip(*sizes, strict=True))
        return f"{used:.1f}/{total:.0f} GB"
    return NOT_KNOWN if peak is None else f"{peak / 1024:.1f} GB"


def _link(network: Mapping[str, Any] | None) -> str:
    """Return the traffic of the interface that carries the exchange."""
    if not network:
        return "answers"
    received, sent = (byte_count(network[way]) for way in ("received", "sent"))
    return f"↓{received}/s ↑{sent}/s"
