"""The connections of a simulated cluster (toy_cluster.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from support.toy_cluster import Cluster


class Connection:
    """A TCP connection between two nodes: messages wait while the cable is out."""

    def __init__(self, cluster: Cluster, one: str, other: str) -> None:
        self.cluster = cluster
        self.ends = {one, other}
        self.waiting: dict[str, list[Any]] = {one: [], other: []}
        self.due: dict[str, float] = {one: 0.0, other: 0.0}

    def peer(self, name: str) -> str:
        one, other = self.due
        return other if name == one else one

    def send(self, to: str, message: Any) -> None:
        waiting, random = self.waiting[to], self.cluster.random
        places = [len(waiting)]
        if self.cluster.disorder:  # it may overtake others, and arrive twice
            places = [random.randint(0, len(waiting)) for _ in range(random.choice((1, 1, 2)))]
        for place in places:
            waiting.insert(place, message)
        self.due[to] = max(self.due[to], self.cluster.now + self.cluster.random.uniform(0, 0.05))
        self.cluster.later(self.due[to] - self.cluster.now, lambda: self.deliver(to))

    def deliver(self, to: str) -> None:
        node = self.cluster.nodes[to]
        while self.waiting[to] and to in self.ends and not self.cut and node.up and not node.asleep:
            node.hear(self.peer(to), self.waiting[to].pop(0))

    @property
    def cut(self) -> bool:
        one, other = self.due
        nodes = self.cluster.nodes
        asleep = nodes[one].asleep or nodes[other].asleep
        return asleep or frozenset((one, other)) in self.cluster.cuts

    def close(self, end: str, why: str) -> None:
        """Close one end; the other one notices at once, unless the cable is out."""
        if end in self.ends:
            self.ends.discard(end)
            node, peer = self.cluster.nodes[end], self.peer(end)
            if node.up:
                node.lost(peer, why)
            if not self.cut and not self.waiting[peer]:
                self.cluster.later(0.02, lambda: self.close(peer, "broke off"))
            elif not self.cut:
                # What was sent before arrives before the end.
                self.cluster.later(0.1, lambda: self.close(peer, "broke off"))
