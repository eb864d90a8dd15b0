"""Lines of a run's metrics, as the trainer writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hearth.record.events import parse
from hearth.record.story import Story


def start_line(*nodes: str, **more: Any) -> dict[str, Any]:
    """Return the line of a launch with one rank on each of these nodes."""
    return {"kind": "start", "steps": 60, "ranks": [{"node": node} for node in nodes], **more}


def step_line(*speeds: float, **more: Any) -> dict[str, Any]:
    """Return the line of a step of ranks that learn at these tokens a second."""
    return {
        "kind": "step",
        "step": 12,
        "steps": 60,
        "loss": 1.25,
        "tokens": 10 * sum(speeds),
        "tokens_per_second": sum(speeds),
        "tokens_per_second_by_rank": speeds,
        "rows_by_rank": [4] * len(speeds),
        "compute_seconds_by_rank": [1.0] * len(speeds),
        "wait_seconds_by_rank": [0.0] * len(speeds),
        "peak_memory_mib_by_rank": [100] * len(speeds),
        **more,
    }


def slow_links(*hops: tuple[str, str]) -> dict[str, Any]:
    """Return the field of a step that these links, of 5 Mbit/s, hold up."""
    advice = [
        {"what": "sync_every=16", "tokens_per_second": 640.0},
        {"what": "a cable that carries what it did", "tokens_per_second": None},
    ]
    return {
        "part": 0.95,
        "hops": [*map(list, hops)],
        "mbit": 4.96,
        "began": 940.4,
        "advice": advice,
    }


def team_line(step: int, *nodes: str, **more: Any) -> dict[str, Any]:
    """Return the line of a team of these nodes that was formed after this step."""
    return {"kind": "team", "step": step, "nodes": nodes, "left": {}, "joined": [], **more}


def written(*lines: dict[str, Any]) -> str:
    """Return the text of these lines."""
    return "".join(f"{json.dumps(line)}\n" for line in lines)


def story_of(*lines: Mapping[str, Any]) -> Story:
    """Return the state of a run with these lines on record."""
    return Story.from_events(parse(written(*lines).splitlines()))


def records_in(text: str) -> list[dict[str, Any]]:
    """Return the whole lines of a record as they were written."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
