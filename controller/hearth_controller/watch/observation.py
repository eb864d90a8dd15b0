"""A run as one node has it on record: its supervisor's state, and the story of its metrics. Pure.

It is folded from the changes that `hearth.record.stream` reports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.slurm import newest_job
from hearth.record.story import Story, parse
from hearth.supervisor.record import misfit
from hearth_controller.runs.job_state import settled
from hearth_controller.watch.progress import SplitNews

_TO_THE_SECOND = len("2026-11-20T07:46:11")


class Observation:
    """The state and the story of a run on one node.

    Attributes:
        record: The supervisor's record; None before the first change, of a run that the node does
            not know, and of a record that cannot be used.
        wrong: The reason why the node's record cannot be used, or ''.
        in_queue: The record as Slurm's queue corrects it, None if the run is in no queue.
        alive: Whether the supervisor's process is alive.
        reached: How far the node's metrics reach (`hearth.record.stream.Progress`).
        story: The history since this node's supervisor began.
        whole: The history with all earlier launches, as the run's report tells it.
    """

    def __init__(self) -> None:
        self.record: Mapping[str, Any] | None = None
        self.wrong = ""
        self.in_queue: Mapping[str, Any] | None = None
        self.alive = False
        self.reached: Mapping[str, Any] = {}
        self.story, self.whole, self._earlier, self._half = Story(), Story(), Story(), ""
        self._news = SplitNews()

    @property
    def current(self) -> Mapping[str, Any] | None:
        """The record that counts: that of the queue if the run waits there."""
        return self.in_queue or self.record

    def add(self, change: Mapping[str, Any]) -> list[str]:
        """Add a change; return messages about rows that it moves, and links that became slow."""
        if "record" in change:
            record, self.alive = change["record"], change["alive"]
            self.wrong = "" if record is None else misfit(record)
            self.record = None if self.wrong else record
            asked = self.record and change.get("queue")
            self.in_queue = settled(self.record, newest_job(*asked)) if asked else None
        self.reached = change.get("reached", self.reached)
        metrics = change.get("metrics")
        return self._add_metrics(metrics) if metrics and self.record else []

    def _add_metrics(self, metrics: Mapping[str, Any]) -> list[str]:
        """Add the whole lines written since the supervisor began; half a line waits.

        Earlier ones are of a launch that is over, unless this node has come back to a run that went
        on without it: it then gets the lines of the others, and a line that it is with them again.
        """
        if metrics["anew"]:  # a resumed run replaces the file
            self.story, self.whole, self._earlier, self._half = Story(), Story(), Story(), ""
            self._news = SplitNews()
        *lines, self._half = (self._half + metrics["text"]).split("\n")
        began = self.record.get("began", "")[:_TO_THE_SECOND]  # runs of earlier versions
        news = []
        for line in parse(lines):
            self.whole.add(line)
            kind = line["kind"]
            if str(line.get("time"))[:_TO_THE_SECOND] < began:
                self._earlier = Story() if kind == "start" else self._earlier
                self._earlier.add(line)
                continue
            if kind == "team" and not self.story.launches:
                self.story = self._earlier
                self._news = SplitNews(self.story.plans)
            known, links = len(self.story.plans), len(self.story.links)
            self.story.add(line)
            news += filter(None, map(self._news.add, self.story.plans[known:]))
            news += [f"step {mark.step}: {mark.text}" for mark in self.story.links[links:]]
        return news
