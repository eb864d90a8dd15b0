"""Machines that train at the same time on one computer: where, and how fast each is. Pure.

The machines of the lab share this computer's memory bus and caches, and its speed, which goes up
and down with what its host has to do. Machines that train one after the other would be measured at
other speeds than machines that train together; these see the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

LEAST_STEPS = 3
FULL = 0.85
"""How much of a core is given away at most. Where 0.9 was, one of three got a quarter less."""


@dataclass(frozen=True)
class Step:
    """When a step began and ended, in seconds, and its tokens."""

    began: float
    ended: float
    tokens: int


def speeds(
    records: Mapping[str, Sequence[Mapping[str, Any]]], skipped: int
) -> dict[str, dict[str, Any]]:
    """Return by node its tokens/s, and of how many steps, while all of them trained.

    `records` are the lines of a run's metrics.jsonl by node; the first `skipped` steps of a run are
    not counted. Raises ValueError that names a node with too few steps in that time.
    """
    steps = {node: steps_of(record)[skipped:] for node, record in records.items()}
    if missing := [node for node, its in steps.items() if not its]:
        raise ValueError(f"{', '.join(missing)}: no steps after the first {skipped}")
    begin = max(its[0].began for its in steps.values())
    end = min(its[-1].ended for its in steps.values())
    found = {}
    for node, its in steps.items():
        within = [step for step in its if step.began >= begin and step.ended <= end]
        if len(within) < LEAST_STEPS:
            raise ValueError(f"{node}: {len(within)} steps while all trained, {LEAST_STEPS} wanted")
        seconds = sum(step.ended - step.began for step in within)
        tokens = sum(step.tokens for step in within)
        found[node] = {"tokens_per_second": tokens / seconds, "steps": len(within)}
    return found


def steps_of(record: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Return a run's steps; each is timed from its own end, before its line was written."""
    steps = []
    for line in record:
        if line["kind"] == "step":
            ended = datetime.fromisoformat(line["time"]).timestamp()
            lasted = line["tokens"] / line["tokens_per_second"]
            steps.append(Step(ended - lasted, ended, line["tokens"]))
    return steps


def parts(shares: Mapping[str, float], rows: int) -> dict[str, int]:
    """Return by node about as many of the `rows` as a split by these shares would give it."""
    total = sum(shares.values())
    return {node: max(1, round(rows * share / total)) for node, share in shares.items()}


def places(shares: Mapping[str, float], cores: int) -> dict[str, int]:
    """Return by node the core that it is held to, by its share of one: that with most room.

    Machines that may go from core to core push each other off them: three with 0.4 of a core each
    reached some 7% less than three times one of them, and 5% less again where they had to meet,
    as after a step. Of cores with as much room it is the last, since the computer's own work is on
    the first as a rule.

    Raises ValueError that names a node no core has room for.
    """
    room = dict.fromkeys(reversed(range(cores)), FULL)
    found = {}
    for node, share in shares.items():
        found[node] = max(room, key=room.__getitem__)
        room[found[node]] -= share
        if room[found[node]] < 0:
            raise ValueError(
                f"{node}: no core has {share} left, since at most {FULL} is given away"
            )
    return found
