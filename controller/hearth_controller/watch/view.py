"""A run as its nodes have it on record, and over all nodes that are followed. Pure.

It is folded from the changes that `hearth.record.stream` reports and followers relay.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from hearth.base.slurm import newest_job
from hearth.base.text import plain
from hearth.record.events import StartEvent, TeamEvent, parse
from hearth.record.story import Story
from hearth.supervisor.record import misfit
from hearth_controller.runs.job_state import settled
from hearth_controller.watch.progress import SplitNews

SILENT = 15.0
"""Seconds without a sign of life after which a node is silent; they come every 3 s."""


class RunView:
    """A run over all of its nodes that are followed.

    Attributes:
        run: Its name, '' before the first event.
        nodes: What each node has on record.
        heard: By node, when its last event came, by the clock of `add`.
        outcomes: By node, how the run ended there.
        progress: The line that attach.yml would show.
        version: Number of the events that changed anything.
    """

    def __init__(self) -> None:
        self.run, self.progress, self.version = "", "", 0
        self.nodes: dict[str, NodeView] = {}
        self.heard: dict[str, float] = {}
        self.outcomes: dict[str, Mapping[str, Any]] = {}
        self._leader = ""

    def add(self, node: str, event: Mapping[str, Any], now: float) -> None:
        """Add an event of a node's relay that came `now`."""
        self.run = event.get("run", self.run)
        seen = self.nodes.setdefault(node, NodeView())
        self.heard[node] = now
        if change := event.get("change"):
            seen.add(change)
        if "progress" in event:
            self._leader, self.progress = node, plain(event["progress"])
        if "outcome" in event:
            self.outcomes[node] = event["outcome"]
        self.version += event != {"change": {}}

    @property
    def leader(self) -> NodeView:
        """The node whose follower draws the run: its metrics are the newest."""
        return self.nodes.get(self._leader) or next(iter(self.nodes.values()), NodeView())

    @property
    def story(self) -> Story:
        """The history of the run, with the supervisors' reasons why nodes left."""
        launches = (self.leader.record or {}).get("launches") or []
        return self.leader.whole.explain(launches)

    @property
    def names(self) -> list[str]:
        """The nodes in order of rank; those that the inventory has no more come, too."""
        known = (self.leader.record or {}).get("nodes") or []
        return list(dict.fromkeys([*known, *self.nodes]))

    @property
    def state(self) -> str:
        """The state of the run: `queued`, `waiting`, `running`, an end, or '' if none is known."""
        return str((self.leader.current or {}).get("state", ""))

    def state_of(self, node: str, now: float) -> str:
        """Return the state of a node `now`, in a word or two."""
        seen, story = self.nodes.get(node), self.leader.story
        record = seen.current if seen else None
        if outcome := self.outcomes.get(node):
            return str(outcome["state"])
        if not record:
            return "connecting" if seen else "not followed"
        if record.get("away"):
            return "away"
        if record["state"] != "running":
            return str(record["state"])
        if node not in story.present:
            there = seen.alive and self.silent(node, now) < SILENT
            return "loading" if there else "left"
        if not story.window:
            return "evaluating"
        return "trained" if story.state else "training"

    def silent(self, node: str, now: float) -> float:
        """Return the seconds since the last sign of life of a node under way, else 0."""
        over = node in self.outcomes or node not in self.heard
        return 0.0 if over else now - self.heard[node]


_TO_THE_SECOND = len("2026-11-20T07:46:11")


class NodeView:
    """The state and the story of a run on one node.

    Attributes:
        record: The supervisor's record; None before the first change, of a run that the node does
            not know, and of a record that cannot be used.
        wrong: The reason why the node's record cannot be used, or ''.
        in_queue: The record as Slurm's queue corrects it, None if the run is in no queue.
        alive: Whether the supervisor's process is alive.
        behind: Whether the node has more of its metrics than has come so far.
        story: The history since this node's supervisor began.
        whole: The history with all earlier launches, as the run's report tells it.
    """

    def __init__(self) -> None:
        self.record: Mapping[str, Any] | None = None
        self.wrong = ""
        self.in_queue: Mapping[str, Any] | None = None
        self.alive = False
        self.behind = False
        self.story, self.whole, self._earlier, self._half = Story(), Story(), Story(), ""
        self._news = SplitNews()

    @property
    def reached(self) -> dict[str, Any]:
        """The progress on record here: the group, its last step, whether the run ended."""
        if not (group := self.whole.group):
            return {}
        step, ended = self.whole.step, self.whole.ended
        return {"generation": group.generation, "step": step, "ended": ended}

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
        metrics = change.get("metrics")
        self.behind = bool(metrics and metrics["behind"]) if "metrics" in change else self.behind
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
        for event in parse(lines):
            self.whole.add(copy(event))
            if (event.time or began)[:_TO_THE_SECOND] < began:
                self._earlier = Story() if isinstance(event, StartEvent) else self._earlier
                self._earlier.add(event)
                continue
            if isinstance(event, TeamEvent) and not self.story.launches:
                self.story = self._earlier
                self._news = SplitNews(self.story)
            known, links = len(self.story.plans), len(self.story.links)
            self.story.add(event)
            news += [self._news.add(plan, self.story) for plan in self.story.plans[known:]]
            news += [f"step {mark.step}: {mark.text}" for mark in self.story.links[links:]]
        return [text for text in news if text]
