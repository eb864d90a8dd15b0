"""The figures of a live view: of the run as a whole, and of each of its nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hearth.base.text import NOT_KNOWN, byte_count, duration, plain
from hearth_controller.runs.windows import warmest
from hearth_controller.watch.view import RunView

SILENT = 15.0
"""Seconds without a sign of life after which a node is shown as silent; they come every 3 s."""

TITLES = ("node", "rank", "state", "tokens/s", "share", "temp", "memory", "link")
GOOD, POOR = ("training", "trained", "finished", "evaluating"), ("left", "lost", "failed", "away")
"""States of a node that are as they should be, and those that need a look."""


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
        state, silent = view.state_of(name), view.silent(name, now)
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
    texts = {
        "loss": None if story.loss is None else f"{story.loss:.3f}",
        "held out": " → ".join(f"{loss:.3f}" for loss in dict.fromkeys((losses[:1] + losses[-1:]))),
        "tokens/s": story.window and f"{story.window.tokens_per_second:,.0f}",
        "learning rate": None if story.learning_rate is None else f"{story.learning_rate:.3g}",
        "took": duration(story.seconds) if story.seconds else None,
    }
    return [f"{name} {text}" for name, text in texts.items() if text]


def step_text(view: RunView) -> str:
    """Return the steps that are done and the time left, or what the run does without steps."""
    story = view.leader.story
    if not story.window:
        return view.progress
    left = story.eta_seconds
    rest = f" · {duration(left)} left" if left and not view.outcomes else ""
    return f"step {story.step}/{story.steps}{rest}"


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
