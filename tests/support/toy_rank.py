"""The toy ranks of a simulated cluster (toy_cluster.py): they obey orders, and compute nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hearth.ranks.control_protocol import (
    Form,
    Interrupt,
    Leave,
    LoadAlone,
    Pause,
    RankEnded,
    Waiting,
)
from hearth.supervisor.decisions.events import RankSaid
from hearth.supervisor.messages import RanksFailure

if TYPE_CHECKING:
    from support.toy_node import Node


@dataclass
class Group:
    """Ranks that are in a group, or on their way into it."""

    form: Form
    ranks: dict[str, Rank] = field(default_factory=dict)
    formed: bool = False
    over: bool = False


class Rank:
    """The one rank of a node, from its start to its end."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.cluster = node.cluster
        self.alive = True
        self.hung = False
        self.pausing = False
        self.waits = False
        self.loaded = False
        self.step = self.formed_at = 0
        self.group: Group | None = None
        self.last = 0
        self.later(self.cluster.random.uniform(0.5, 2), lambda: self.wait("new"))

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something later if this rank can then."""
        self.cluster.later(seconds, lambda: act() if self.alive and not self.hung else None)

    def say(self, message: Any) -> None:
        if self.node.rank is self:
            self.node.happen(RankSaid(0, message))

    def wait(self, why: str) -> None:
        self.waits = True
        self.say(Waiting(why, self.last, self.step, self.loaded, f"toy: {why}"))

    def obey(self, order: Any) -> None:
        """Follow an order, if the rank lives."""
        if not self.alive or self.hung:
            return
        match order:
            case LoadAlone() if self.waits:
                self.waits = False
                self.later(self.cluster.random.uniform(1, 3), self._load)
            case Leave(save):
                self.waits = False
                if save:
                    self.node.kept = self.step
                self.later(0.1, lambda: self.end("stopped"))
            case Pause(generation) if self.group and self.group.form.generation == generation:
                self.pausing = True
            case Interrupt(generation) if self.group and self.group.form.generation == generation:
                self.drop()
            case Form() if self.waits:
                self.waits, self.pausing = False, False
                self.cluster.enter(self, order)

    def _load(self) -> None:
        self.loaded = True
        self.wait("new")

    def drop(self) -> None:
        """Get out of the group: the others notice by their connections."""
        group, self.group = self.group, None
        assert group
        self.cluster.break_up(group, self)
        if group.form.fresh and not group.formed:
            self.alive = False
            self.node.ranks_failed(RanksFailure(0, "its group broke before it trained", True))
            return
        self.later(0.05, lambda: self.wait("broken"))

    def end(self, outcome: str) -> None:
        self.group, self.alive = None, False
        self.cluster.later(0.1, lambda: self.say(RankEnded(outcome, self.step)))

    def die(self) -> None:
        self.alive = False
        if self.group:
            group, self.group = self.group, None
            self.cluster.break_up(group, self)
