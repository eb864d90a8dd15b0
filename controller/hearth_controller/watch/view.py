"""A run as the followers of its nodes report it, folded from the events of their relays. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hearth.base.text import plain
from hearth.record.story import Story
from hearth_controller.watch.observation import Observation

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
        self.nodes: dict[str, Observation] = {}
        self.heard: dict[str, float] = {}
        self.outcomes: dict[str, Mapping[str, Any]] = {}
        self._leader = ""

    def add(self, node: str, event: Mapping[str, Any], now: float) -> None:
        """Add an event of a node's relay that came `now`."""
        self.run = event.get("run", self.run)
        seen = self.nodes.setdefault(node, Observation())
        self.heard[node] = now
        if change := event.get("change"):
            seen.add(change)
        if "progress" in event:
            self._leader, self.progress = node, plain(event["progress"])
        if "outcome" in event:
            self.outcomes[node] = event["outcome"]
        self.version += event != {"change": {}}

    @property
    def leader(self) -> Observation:
        """The node whose follower draws the run, of which the metrics are the newest."""
        return self.nodes.get(self._leader) or next(iter(self.nodes.values()), Observation())

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
