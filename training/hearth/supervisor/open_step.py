"""The step that a node's ranks are in: since when, and who keeps them waiting. Pure.

A step that takes long looks like one that hangs. Each supervisor tells the others in its heartbeats
what keeps its ranks from the exchange, and which link they receive over, slowly, within it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hearth.base.text import duration, plain
from hearth.plan.slow_links import SLOW_MBIT, hop_text, mbit_text
from hearth.ranks.control_protocol import FOR_OTHERS, MICRO_BATCH, OPTIMIZER, SEARCH, Doing
from hearth.supervisor.messages import Beat

OLD = 15.0
"""Least age in seconds of a step that is shown with it; it is recorded a heartbeat earlier."""

_OF_A_STEP = (MICRO_BATCH, OPTIMIZER, SEARCH, FOR_OTHERS)
"""Pieces of work that belong to a step; any other one ends it."""


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


@dataclass
class _Rank:
    step: int = 0
    since: float | None = None
    doing: str = ""
    sender: str = ""
    mbit: float = 0.0


@dataclass
class OpenStep:
    """Follows the steps of a node's ranks, by their local number; any clock does for its times."""

    _ranks: dict[int, _Rank] = field(default_factory=dict)

    def began(self, local_rank: int, doing: Doing, now: float) -> None:
        """Note that a rank began a piece of work, or still waits for others."""
        rank = self._ranks.setdefault(local_rank, _Rank())
        if doing.what not in _OF_A_STEP:
            rank.since = None
        elif doing.step > rank.step:
            rank.step, rank.since = doing.step, now
        rank.doing = "" if doing.what == FOR_OTHERS else doing.what
        rank.sender, rank.mbit = doing.sender, doing.mbit

    def rested(self, local_rank: int) -> None:
        """Note that a rank is in no step: it may take the same one again in another group."""
        self._ranks.pop(local_rank, None)

    def clear(self) -> None:
        """Note that all ranks are in no step."""
        self._ranks.clear()

    @property
    def beat(self) -> Beat:
        """The heartbeat for the other nodes."""
        ranks = self._ranks.values()
        step = max((rank.step for rank in ranks), default=0)
        doing = next((rank.doing for rank in ranks if rank.doing), "")
        over_link = next((rank for rank in ranks if rank.sender), _Rank())
        return Beat(step, doing, over_link.sender, over_link.mbit)

    def record(self, node: str, beats: Mapping[str, Beat], now: float) -> OldStep | None:
        """Return the step of this `node`'s ranks, None unless it is old.

        `beats` are the last heartbeats of the other nodes of its group.
        """
        open_ranks = [(rank.since, rank.step) for rank in self._ranks.values() if rank.since]
        since, step = min(open_ranks, default=(now, 0))
        if not step or now - since < OLD - 5:
            return None
        every = {node: self.beat, **beats}
        # In a ring one node may be through with the exchange, and compute, while others are not.
        busy = {
            name: beat.doing for name, beat in every.items() if beat.doing and beat.step <= step
        }
        links = [(beat.mbit, beat.sender, name) for name, beat in every.items() if beat.sender]
        mbit, sender, receiver = min(links, default=(0.0, "", ""))
        waits_for = busy if len(busy) < len(every) else {}
        link = None if busy or not sender else (sender, receiver, round(mbit, 3))
        return OldStep(step, round(now - since), waits_for, link)


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
