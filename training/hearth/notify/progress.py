"""The progress of a run, from the record that this node has of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        step, steps: steps done, and in all; 0 if nothing is on record.
        nodes: those that trained last, in rank order.
        began: time at which the ranks first began (ISO 8601).
        seconds: time from then to the end, if that is on record.
        perplexity: of held-out data before and after the training, each None if not evaluated.
        reason: why the run finished before its last step, '' if it did not.
    """

    step: int = 0
    steps: int = 0
    nodes: tuple[str, ...] = ()
    began: str = ""
    seconds: float | None = None
    perplexity: tuple[float | None, float | None] = (None, None)
    reason: str = ""

    @classmethod
    def from_lines(cls, lines: Iterable[Mapping[str, Any]]) -> Progress:
        """Return the progress that the lines of a `metrics.jsonl` tell; malformed ones nothing."""
        progress = cls()
        for line in lines:
            with suppress(LookupError, TypeError, ValueError, AttributeError):
                progress = progress._after(line)
        return progress

    def _after(self, line: Mapping[str, Any]) -> Progress:
        """Return the progress after one more line."""
        match line["kind"]:
            case "start":
                nodes = tuple(dict.fromkeys(str(rank["node"]) for rank in line["ranks"]))
                step, steps = int(line.get("step", 0)), int(line["steps"])
                began = self.began or str(line.get("time") or "")
                return Progress(step, steps, nodes, began, perplexity=self.perplexity)
            case "team":
                return replace(self, nodes=tuple(map(str, line["nodes"])))
            case "step":
                steps = int(line.get("steps", self.steps))
                return replace(self, step=int(line["step"]), steps=steps)
            case "evaluate" if line["when"] in ("before", "after"):
                before, after = self.perplexity
                found = line["perplexity"]
                value = None if found is None else float(found)
                both = (value, after) if line["when"] == "before" else (before, value)
                return replace(self, perplexity=both)
            case "end":
                step, reason = int(line["step"]), str(line.get("reason") or "")
                seconds = _seconds(self.began, str(line.get("time") or ""))
                return replace(self, step=step, reason=reason, seconds=seconds)
        return self


def _seconds(began: str, ended: str) -> float | None:
    """Return the seconds between two times (ISO 8601), None if one is not known.

    The rank that records the end of a run may have joined it late, and has no time of its own.
    """
    try:
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    except (TypeError, ValueError):
        return None


def read_progress(results: Path) -> Progress:
    """Read the progress of a run from its folder; that of nothing if there is no record."""
    records = []
    with suppress(OSError):
        text = (results / METRICS).read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            with suppress(ValueError, RecursionError):
                records.append(json.loads(line))
    return Progress.from_lines(records)
