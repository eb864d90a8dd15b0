"""The live line of a run under way: its state, its steps, its speed by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.text import duration
from hearth.plan.straggler import has_changed, moves, waited_for
from hearth.record.events import PlanEvent
from hearth.record.story import Story
from hearth.supervisor.cause import ENDS
from hearth.supervisor.open_step import describe_open_step
from hearth_controller.runs.listing import local_time

_MANY = 0.25
"""Part of a rank's rows that must move to be news; a step's speed varies by less than that."""

_QUIET_SECONDS = 600.0
"""Seconds between two news of the split, which may move with every change of a machine's load."""


def state_text(record: Mapping[str, Any], story: Story) -> str:
    """Return the live line: state or progress, and which nodes do not reach each other."""
    unreached = record.get("unreached") or [] if record.get("state") not in ENDS else []
    return " · ".join([_state_text(record, story), *unreached])


def _state_text(record: Mapping[str, Any], story: Story) -> str:
    """Return the state before the ranks run, then their progress."""
    if record.get("state") == "queued":
        return str(record["cause"]["message"])
    cause = record.get("cause")
    joining = story.launches and cause and cause["kind"] == "node_back"  # told by the metrics
    if record.get("state") == "waiting" and cause and cause.get("kind") == "away":
        return f"waiting, since {cause['node']} is {cause['message'].splitlines()[0]}"
    if record.get("state") == "waiting" and not joining:
        missing = ", ".join(record.get("missing") or [])
        if cause:
            lost = f"{cause['node']}: {cause['message'].splitlines()[0]}"
            return f"{lost}; waiting until {missing} is back" if missing else lost
        return f"waiting until {missing} is ready" if missing else "all nodes are ready"
    if script := record.get("script"):
        return f"{script} has been running since {local_time(str(record['since']))}"
    ended = record.get("state") in ENDS
    return progress_text(story, ended, describe_open_step(record.get("open_step")))


def progress_text(story: Story, ended: bool = False, open_step: str = "") -> str:
    """Return the progress of the run's last launch as one line.

    `open_step` tells of a step that takes long. A narrow screen shows the beginning of the line.
    """
    if not story.launches:
        return "the ranks load the model"
    if not (window := story.window):
        return "held-out evaluation before the first step"
    parts = [f"step {story.step}/{story.steps}"]
    if not ended:
        parts += filter(None, (open_step, story.slow_links and story.slow_links.brief))
    if window.loss is not None:
        parts.append(f"loss {window.loss:.3f}")
    speeds = {node: work.tokens / window.seconds for node, work in window.parts.items()}
    shares = ", ".join(f"{node} {speed:.0f}" for node, speed in speeds.items())
    shown = f" ({shares})" if len(speeds) > 1 else ""
    parts.append(f"{window.tokens_per_second:.0f} tokens/s{shown}")
    if story.state and not ended:
        parts.append("trained")
    elif story.step >= story.steps and not ended:
        parts.append("held-out evaluation and saving")
    elif story.eta_seconds is not None and not ended:
        parts.append(f"{duration(story.eta_seconds)} left")
    works = window.parts.values()
    seconds, waits = zip(
        *((each.compute_seconds, each.wait_seconds) for each in works), strict=True
    )
    if slow := waited_for(seconds, list(speeds.values()), list(speeds), waits):
        parts.append(f"the others wait for {slow}")
    if story.away and not ended:
        parts.append(f"without {', '.join(story.away)}")
    if story.disks and not ended:
        parts.append(f"no checkpoints on {', '.join(story.disks)}")
    return " · ".join(parts)


def tenths(story: Story) -> int:
    """Return the tenths of the steps that are done."""
    return story.step * 10 // story.steps if story.steps else 0


class SplitNews:
    """Finds plans that move many rows because a machine has slowed down.

    A plan is compared with that of the message before, and ten minutes lie between two.
    """

    def __init__(self, story: Story | None = None) -> None:
        """Begin after the plans of a `story`."""
        self._said: dict[tuple[int, int, int], tuple[PlanEvent, float]] = {}
        for plan in story.plans if story else ():
            self.add(plan, story)

    def add(self, plan: PlanEvent, story: Story) -> str:
        """Add a plan of a story; return a message on it, or ''."""
        # An epoch's last step has fewer rows: compare only plans of the same number of rows.
        # Of another team, the rows of a node that left or joined moved.
        alike = plan.launch, plan.team, sum(plan.split)
        known, said_at = self._said.setdefault(alike, (plan, -_QUIET_SECONDS))
        if plan.at - said_at < _QUIET_SECONDS or not _matters(known, plan):
            return ""
        self._said[alike] = plan, plan.at
        nodes = story.launches[plan.launch].nodes
        return f"the split {moves(known.split, plan.split, plan.slowness, nodes)}"


def _matters(known: PlanEvent, plan: PlanEvent) -> bool:
    """Return whether a plan moves a quarter of a rank's rows, with a changed speed somewhere."""
    if len(plan.slowness) != len(plan.split):
        return False
    moved = zip(known.split, plan.split, plan.slowness, strict=True)
    changed = [
        (abs(was - rows) / max(was, rows), has_changed(slow))
        for was, rows, slow in moved
        if was != rows
    ]
    return any(slow for _, slow in changed) and any(part >= _MANY for part, _ in changed)
