"""The live line of a run under way: its state, its steps, its speed by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hearth.base.text import duration
from hearth.plan.straggler import has_changed, moves, waited_for
from hearth_controller.runs.listing import local_time


@dataclass
class Progress:
    """The progress of a run's last launch: the newest lines of its metrics, and news to print."""

    start: Mapping[str, Any] | None = None
    step: Mapping[str, Any] | None = None
    rows: dict[int, list[int]] = field(default_factory=dict)
    news: list[str] = field(default_factory=list)

    def take(self, line: Mapping[str, Any]) -> None:
        """Take in one line of `metrics.jsonl`."""
        match line.get("kind"):
            case "start":
                self.start, self.step, self.rows = line, None, {}
            case "step":
                self.step = line
            case "plan":
                self._take_plan(line)

    def _take_plan(self, line: Mapping[str, Any]) -> None:
        """Remember the rows of each rank; a new split is news where a machine has slowed down."""
        now, slowness = list(line.get("rows_of_round", line["rows"])), line.get("slowness", [])
        # An epoch's last step has fewer rows: compare only plans of the same number of rows.
        before = self.rows.get(sum(now), now)
        self.rows[sum(now)] = now
        if not len(before) == len(now) == len(slowness) == len(self._nodes):
            return  # of a launch on other nodes
        moved = zip(before, now, slowness, strict=True)
        if any(was != rows and has_changed(slow) for was, rows, slow in moved):
            self.news.append(f"the split {moves(before, now, slowness, self._nodes)}")

    @property
    def _nodes(self) -> list[str]:
        """The node of each rank."""
        return [str(rank.get("node")) for rank in (self.start or {}).get("ranks", [])]

    @property
    def done(self) -> tuple[int, int]:
        """The number of steps that are done, and of all steps."""
        start, step = self.start or {}, self.step or {}
        return int(step.get("step", 0)), int(step.get("steps", start.get("steps", 0)))

    @property
    def tenth(self) -> int:
        """Tenths of the steps that are done."""
        step, steps = self.done
        return step * 10 // steps if steps else 0

    def text(self) -> str:
        """Return the progress as one line."""
        if self.start is None:
            return "the ranks load the model"
        if self.step is None:
            return "held-out evaluation before the first step"
        step, steps = self.done
        parts = [f"step {step}/{steps}"]
        if (loss := self.step.get("loss")) is not None:
            parts.append(f"loss {loss:.3f}")
        nodes, speeds = self._nodes, self.step.get("tokens_per_second_by_rank", [])
        known = len(nodes) == len(speeds)
        shares = _shares(nodes, speeds) if known and len(set(nodes)) > 1 else ""
        parts.append(f"{float(self.step.get('tokens_per_second', 0)):.0f} tokens/s{shares}")
        if step >= steps:
            parts.append("held-out evaluation and saving")
        elif (eta := self.step.get("eta_seconds")) is not None:
            parts.append(f"{duration(eta)} left")
        seconds = self.step.get("compute_seconds_by_rank", [])
        if known and len(seconds) == len(nodes) and (slow := waited_for(seconds, speeds, nodes)):
            parts.append(f"the others wait for {slow}")
        return " · ".join(parts)


def _shares(nodes: Sequence[str], speeds: Sequence[float]) -> str:
    """Return tokens/s by node, the ranks of a node added up."""
    by_node: dict[str, float] = {}
    for node, speed in zip(nodes, speeds, strict=True):
        by_node[node] = by_node.get(node, 0.0) + speed
    return " (" + ", ".join(f"{node} {speed:.0f}" for node, speed in by_node.items()) + ")"


def state_text(record: Mapping[str, Any] | None, progress: Progress) -> str:
    """Return the live line: the state before the ranks run, then their progress."""
    if record is None:
        return "the supervisor starts"
    if record.get("state") == "waiting":
        missing = ", ".join(record.get("missing") or [])
        if cause := record.get("cause"):
            lost = f"{cause['node']}: {cause['message'].splitlines()[0]}"
            return f"{lost}; waiting until {missing} is back" if missing else lost
        return f"waiting until {missing} is ready" if missing else "all nodes are ready"
    if script := record.get("script"):
        return f"{script} has been running since {local_time(str(record['since']))}"
    return progress.text()
