"""The progress of a run, from the record that this node has of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        step, steps: steps done, and in all; 0 if nothing is on record.
        nodes: those that trained last, in rank order.
        seconds: training time of the last launch, if its end is on record.
        perplexity: of held-out data before and after the training, each None if not evaluated.
        reason: why the run finished before its last step, '' if it did not.
    """

    step: int = 0
    steps: int = 0
    nodes: tuple[str, ...] = ()
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
                return replace(self, step=step, steps=steps, nodes=nodes, seconds=None, reason="")
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
                seconds, reason = float(line["seconds"]), str(line.get("reason") or "")
                return replace(self, step=int(line["step"]), seconds=seconds, reason=reason)
        return self


def read_progress(results: Path) -> Progress:
    """Read the progress of a run from its folder; that of nothing if there is no record."""
    records = []
    with suppress(OSError):
        text = (results / METRICS).read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            with suppress(ValueError, RecursionError):
                records.append(json.loads(line))
    return Progress.from_lines(records)
