"""The step that a node's ranks are in: since when, and who keeps them waiting. Pure.

A step that takes long looks like one that hangs. Each supervisor tells the others in its heartbeats
what keeps its ranks from the exchange, and which link they receive over, slowly, within it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hearth.base.text import duration, plain
from hearth.plan.slow_links import SLOW_MBIT, hop_text, mbit_text
from hearth.supervisor.messages import Beat

OLD = 15.0
"""Least age in seconds of a step that is shown with it; it is recorded a heartbeat earlier."""


@dataclass(frozen=True)
class OldStep:
    """A step that takes long.

    Attributes:
        step: its number.
        seconds: since it began.
        waits_for: by node that keeps the others waiting, what its ranks do.
        link: sender, receiver and Mbit/s of the slowest link, if all wait for the exchange.
    """

    step: int
    seconds: int
    waits_for: dict[str, str]
    link: tuple[str, str, float] | None


def old_step(step: int, seconds: float, beats: Mapping[str, Beat]) -> OldStep | None:
    """Return a step that began some `seconds` ago as an old one, None unless it is.

    `beats` are the last heartbeats of all nodes of its group.
    """
    if seconds < OLD - 5:
        return None
    # In a ring one node may be through with the exchange, and compute, while others are not.
    busy = {name: beat.doing for name, beat in beats.items() if beat.doing and beat.step <= step}
    links = [(beat.mbit, beat.sender, name) for name, beat in beats.items() if beat.sender]
    mbit, sender, receiver = min(links, default=(0.0, "", ""))
    waits_for = busy if len(busy) < len(beats) else {}
    link = None if busy or not sender else (sender, receiver, round(mbit, 3))
    return OldStep(step, round(seconds), waits_for, link)


def describe_open_step(record: Mapping[str, Any] | None) -> str:
    """Return a sentence about an old step and who is waited for; '' for none, or a young one."""
    if not record or record["seconds"] < OLD:
        return ""
    for_whom = ", ".join(
        f"{plain(node)} ({plain(what)})" for node, what in record["waits_for"].items()
    )
    if record["link"]:
        *hop, mbit = record["link"]
        for_whom = f"{plain(hop_text(hop))} ({mbit_text(mbit)} Mbit/s)"
    waits = f", waits for {for_whom}" if for_whom else ""
    return f"step {record['step']} for {duration(record['seconds'])}{waits}"


def waits_for_slow_link(record: Mapping[str, Any] | None) -> bool:
    """Return whether an old step waits for a link that is slow for any cable."""
    return bool(describe_open_step(record) and record["link"] and record["link"][2] < SLOW_MBIT)
