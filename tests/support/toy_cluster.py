"""A simulated cluster: the real decisions over a toy network with toy ranks, in virtual time.

Each node has one rank. A group takes a step a second while all its ranks are alive in it and
connected. What goes wrong is called from outside: `Cluster` has a method for each fault.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from random import Random
from typing import Any

from hearth.ranks.control_protocol import Form, Formed
from hearth.supervisor.decisions.actions import Action
from hearth.supervisor.decisions.events import Joined
from hearth.supervisor.decisions.forming import TeamSettings
from hearth.supervisor.decisions.voting import Votes
from hearth.supervisor.messages import RanksFailure, Stop
from support.toy_connection import Connection
from support.toy_node import Node
from support.toy_rank import Group, Rank

SILENCE = 6.0
STEP = 1.0
CHOICES = {"precision": "fp32"}
OWN_ERROR = "torch.OutOfMemoryError: CUDA out of memory"
MACHINE_ERROR = "OSError: [Errno 28] No space left on device"


class Cluster:
    """The machines of a run, their network, and the clock."""

    def __init__(
        self, names: tuple[str, ...], random: Random, last_step: int, **terms: Any
    ) -> None:
        self.names, self.random, self.last_step = names, random, last_step
        self.settings = TeamSettings(names, **{"return_timeout": 600.0} | terms)
        self.now = 0.0
        self._count = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.cuts: set[frozenset[str]] = set()
        self.walls: list[str] = []
        self.disorder = False
        self.connections: dict[frozenset[str], Connection] = {}
        self.groups: dict[tuple[int, tuple[str, ...]], Group] = {}
        self.actions: list[tuple[float, str, Action]] = []
        self.steps: list[tuple[float, int, int]] = []
        self.nodes = {name: Node(self, name) for name in names}
        for name in names:
            self.later(random.uniform(0, 2), self.nodes[name].boot)
        self._reconnect()

    # Time

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._count), act))

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; return whether `until` came true before its end."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, act = heapq.heappop(self._events)
            act()
            if until():
                return True
        self.now = end
        return until()

    # Network

    def _reconnect(self) -> None:
        for one, other in itertools.combinations(self.names, 2):
            pair = frozenset((one, other))
            nodes = self.nodes[one], self.nodes[other]
            able = all(node.up and not node.asleep for node in nodes) and pair not in self.cuts
            known = self.connections.get(pair)
            if known:
                self._mend(known)
            for node, peer in (nodes, nodes[::-1]):
                # Its machine answers, and no supervisor listens.
                if node.up and peer.outcome and not self._refused(node, peer.name):
                    node.lost(peer.name, "refused")
            if able and (known is None or not known.ends):
                connection = self.connections[pair] = Connection(self, one, other)
                for node in nodes:
                    node.happen(Joined(connection.peer(node.name)))
        self.later(0.5, self._reconnect)

    def _refused(self, node: Node, peer: str) -> bool:
        gone = node.state.gone
        return peer in gone and gone[peer].why == "refused"

    def send(self, sender: str, to: str, message: Any) -> None:
        connection = self.connections.get(frozenset((sender, to)))
        if connection and sender in connection.ends:
            connection.send(to, message)

    def disconnect(self, node: Node, why: str = "broke off") -> None:
        for pair, connection in self.connections.items():
            if node.name in pair:
                connection.close(node.name, why)

    def _silent(self, connection: Connection) -> None:
        """Have both ends give up a connection that is cut for too long."""
        if connection.cut:
            for end in [*connection.ends]:
                if not self.nodes[end].asleep:
                    connection.close(end, f"silent for {SILENCE:g} s")

    def _mend(self, connection: Connection) -> None:
        """Deliver what waits, now that both ends can be reached: also that the other one closed."""
        for end in [*connection.ends]:
            connection.deliver(end)
        if len(connection.ends) == 1 and not connection.cut:
            connection.close(*connection.ends, "broke off")

    # Groups

    def enter(self, rank: Rank, form: Form) -> None:
        group = self.groups.setdefault((form.generation, form.nodes), Group(form))
        rank.group, rank.last = group, form.generation
        group.ranks[rank.node.name] = rank
        self.later(30, lambda: self._give_up(group))
        if group.over:
            rank.later(0.1, lambda: rank.drop() if rank.group is group else None)
        elif len(group.ranks) == len(form.nodes):
            self.later(2 if form.fresh else 0.1, lambda: self._complete(group))

    def _whole(self, group: Group) -> bool:
        ranks = group.ranks.values()
        names = group.form.nodes
        cut = any(frozenset(pair) in self.cuts for pair in itertools.combinations(names, 2))
        able = all(r.group is group and r.alive and not r.hung for r in ranks)
        asleep = any(self.nodes[name].asleep for name in names)
        return able and not cut and not asleep and len(group.ranks) == len(names)

    def walled(self, node: str, other: str) -> bool:
        """Return whether a firewall lets no new connection of a node to another through."""
        return other in self.walls and node != other

    def _complete(self, group: Group) -> None:
        names = group.form.nodes
        walled = any(self.walled(one, other) for one in names for other in names)
        if group.over or walled or not self._whole(group):
            return
        others = [g for g in self.groups.values() if g.formed and self._whole(g)]
        assert not others, f"two groups train: {group.form}, {others[0].form}"
        group.formed = True
        fresh = group.form.fresh
        step = self._kept(group) if fresh else max(rank.step for rank in group.ranks.values())
        for rank in group.ranks.values():
            rank.step, rank.formed_at, rank.loaded = step, step, True
            rank.say(Formed(group.form.generation, step, CHOICES))
        self.later(STEP, lambda: self._step(group))

    def _kept(self, group: Group) -> int:
        """Return the step of the newest checkpoint that a group finds, or can be sent."""
        near = {name for node in group.form.nodes for name in (node, *self.nodes[node].state.heard)}
        return max(self.nodes[name].kept for name in near)

    def _step(self, group: Group) -> None:
        if group.over:
            return
        if self._whole(group):
            newest = max((generation for _, generation, _ in self.steps), default=0)
            assert group.form.generation >= newest, "an older group takes a step"
            ranks = [*group.ranks.values()]
            for rank in ranks:
                rank.step += 1
                if rank.step % 10 == 0:
                    rank.node.kept = rank.step
            self.steps.append((self.now, group.form.generation, ranks[0].step))
            outcome = "finished" if ranks[0].step >= self.last_step else ""
            if any(rank.node.state.stop for rank in ranks):
                outcome = "stopped"
            if outcome:
                group.over = True
                for rank in ranks:
                    rank.end(outcome)
            elif any(rank.pausing for rank in ranks):
                group.over = True
                for rank in ranks:
                    rank.group = None
                    rank.wait("paused")
        self.later(STEP, lambda: self._step(group))

    def _give_up(self, group: Group) -> None:
        if not group.formed and not group.over:
            for rank in [*group.ranks.values()]:
                if rank.group is group and rank.alive and not rank.hung:
                    rank.drop()

    def break_up(self, group: Group, by: Rank) -> None:
        """Have the others of a group notice that a rank is out of it, where no cable is cut."""
        group.over = True
        for name, rank in group.ranks.items():
            if rank.group is group and frozenset((name, by.node.name)) not in self.cuts:
                if group.formed and self.random.random() < 0.3:
                    rank.step += 1  # This one has the sum of the step that was under way.
                self.later(0.04, lambda r=rank: self._out(r, group))

    def _out(self, rank: Rank, group: Group) -> None:
        if rank.group is group and rank.alive and not rank.hung and not rank.node.asleep:
            rank.drop()

    # Faults

    def kill(self, name: str, down: float, wiped: bool = False) -> None:
        """Cut a node's power; it is back after `down` seconds, perhaps with an empty disk."""
        node = self.nodes[name]
        node.down()
        if wiped:
            node.disk, node.asked, node.kept, node.known = Votes(), None, 0, -1
        self.later(down, node.boot)

    def restore(self, name: str, down: float) -> None:
        """Cut a node's power; its votes come back out of an old backup, the rest of its disk stays.

        Votes older than the node's team on record count for nothing.
        """
        node = self.nodes[name]
        self.kill(name, down)
        if older := [votes for votes in node.past if votes.newest < node.known]:
            node.disk = self.random.choice(older)

    def kill_rank(self, name: str) -> None:
        node = self.nodes[name]
        if node.up and node.rank.alive:
            node.rank.die()
            node.ranks_failed(RanksFailure(0, "rank 0 was killed by signal 9", curable=True))

    def fail_rank(self, name: str, of_machine: bool = False) -> None:
        """Have a rank end by an error of its own, or by one of its machine."""
        node = self.nodes[name]
        if node.up and node.rank.alive:
            node.rank.die()
            error = MACHINE_ERROR if of_machine else OWN_ERROR
            node.ranks_failed(RanksFailure(0, error, local=of_machine))

    def hang_rank(self, name: str) -> None:
        """Stop a rank; its supervisor kills it 20 s later."""
        rank = self.nodes[name].rank if self.nodes[name].up else None
        if (
            rank
            and rank.alive
            and not rank.hung
            and (rank.group or rank.node.state.ranks.state != "ended")
        ):
            rank.hung = True
            self.later(20, lambda: self._kill_hung(rank))

    def _kill_hung(self, rank: Rank) -> None:
        if rank.node.up and rank.node.rank is rank and rank.alive:
            rank.die()
            rank.node.ranks_failed(RanksFailure(0, "rank 0 did nothing for 20 s", curable=True))

    def cut(self, one: str, other: str, seconds: float) -> None:
        """Cut the connection of two nodes."""
        pair = frozenset((one, other))
        if len(pair) < 2 or pair in self.cuts:
            return
        self.cuts.add(pair)
        if connection := self.connections.get(pair):
            self.later(SILENCE, lambda: self._silent(connection))

        def heal() -> None:
            self.cuts.discard(pair)
            if connection := self.connections.get(pair):
                self._mend(connection)

        self.later(seconds, heal)

    def raise_wall(self, name: str, seconds: float) -> None:
        """Let a firewall of a node admit no new connections of ranks for a while."""
        self.walls.append(name)
        self.later(seconds, lambda: self.walls.remove(name))

    def isolate(self, name: str, seconds: float) -> None:
        """Pull a node's cable."""
        for other in self.names:
            self.cut(name, other, seconds)

    def suspend(self, name: str, seconds: float) -> None:
        """Let a node sleep."""
        node = self.nodes[name]
        if not node.up or node.asleep:
            return
        node.asleep = True
        start = node.starts
        for connection in [c for pair, c in self.connections.items() if name in pair]:
            self.later(SILENCE, lambda c=connection: self._silent(c))

        def wake_up() -> None:
            node.asleep = False
            if not node.up or node.starts != start:
                node.wake()
                return
            if seconds > SILENCE:
                self.disconnect(node, f"suspended or stopped for {seconds:.0f} s")
            for connection in [c for pair, c in self.connections.items() if name in pair]:
                self._mend(connection)
            rank = node.rank
            if rank.group and rank.group.over:
                self._out(rank, rank.group)
            node.wake()

        self.later(seconds, wake_up)

    def leave(self, name: str, away: float) -> None:
        """Ask a node to leave in order; it is back later."""
        node = self.nodes[name]
        if node.up:
            node.leave("the machine shuts down")

            def go() -> None:
                if not node.up or node.state.leaving:
                    self.kill(name, away)

            self.later(30, go)

    def want(self, name: str, seconds: float) -> None:
        """Let the owner want a node's machine for a while, whether its supervisor runs or not."""
        node = self.nodes[name]
        node.owner = f"a game for {seconds:g} s from {self.now:.2f} on"
        node.owner_says()
        self.later(seconds, lambda why=node.owner: node.let_go(why))

    def fill_disk(self, name: str, seconds: float) -> None:
        """Let a node's disk take no votes for a while."""
        node = self.nodes[name]
        node.full = True

        def empty() -> None:
            node.full = False

        self.later(seconds, empty)

    def stop_run(self, name: str, now: bool = False) -> None:
        node = self.nodes[name]
        if node.up:
            node.stop_run(Stop(name, now))

    # Observations

    @property
    def training(self) -> tuple[str, ...]:
        """The nodes whose supervisors say that they train, if they are one group; else ()."""
        names = tuple(n for n in self.names if self.nodes[n].up and self._trains(n))
        groups = {self.nodes[n].rank.group.form.generation for n in names}
        return names if len(groups) == 1 else ()

    def _trains(self, name: str) -> bool:
        node = self.nodes[name]
        return node.state.ranks.state == "training" and node.rank.group is not None

    @property
    def connected(self) -> bool:
        """Whether every node is connected to every other."""
        return all(
            node.up and not node.asleep and len(node.state.heard) == len(self.names) - 1
            for node in self.nodes.values()
        )

    @property
    def whole(self) -> bool:
        """Whether all nodes hear each other, and no cut cable is unnoticed."""
        return self.connected and not self.cuts

    @property
    def open(self) -> tuple[str, ...]:
        """The nodes whose part in the run has not ended."""
        return tuple(name for name in self.names if self.nodes[name].outcome is None)

    def story(self) -> str:
        """The actions so far, for a person who looks for a mistake."""
        return "\n".join(f"{at:8.2f} {node}: {action}" for at, node, action in self.actions)
