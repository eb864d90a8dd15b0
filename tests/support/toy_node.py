"""The nodes of a simulated cluster (toy_cluster.py): real decisions, each with a toy rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearth.ranks.control_protocol import Form
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.decisions import events
from hearth.supervisor.decisions.actions import (
    Action,
    Conclude,
    Depart,
    RecordTraining,
    RestartRanks,
    RestRanks,
    SaveVotes,
    SendVerdict,
    StartTeam,
    StopRanks,
    Tell,
    TellRanks,
)
from hearth.supervisor.decisions.decide import to_prove
from hearth.supervisor.decisions.events import Event, Reaches
from hearth.supervisor.decisions.local_ranks import LocalRanks
from hearth.supervisor.decisions.state import State
from hearth.supervisor.decisions.transition import transition
from hearth.supervisor.decisions.voting import Votes
from hearth.supervisor.messages import RanksFailure, Stop
from support.toy_rank import Rank

if TYPE_CHECKING:
    from support.toy_cluster import Cluster

TICK = 0.5
PROOF, NO_PROOF = 0.01, 4.0
"""Seconds until a node is found to be reached, or not to be."""

REBOOT = 5.0
FORM = ("generation", "nodes", "address", "port", "clients", "fresh")


class Node:
    """A machine with its disk, and the supervisor that runs on it if it is up."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.disk = Votes()
        self.past: list[Votes] = []
        self.known = -1
        self.crashes_at_save = False
        self.full = False
        self.up = self.asleep = False
        self.owner = ""
        self.kept = 0
        self.asked: Stop | None = None
        self.outcome: LaunchOutcome | None = None
        self.starts = 0
        self.unheard: list[Event] = []

    def boot(self) -> None:
        """Start the supervisor."""
        if self.up or self.outcome:
            return
        self.up, self.starts, self.unheard = True, self.starts + 1, []
        cluster = self.cluster
        ranks = LocalRanks.starting(1)
        self.state = State(
            replace(cluster.settings, first_generation=max(1, self.known + 1)),
            self.name,
            ranks.resting() if self.owner else ranks,
            now=cluster.now,
            began=cluster.now,
            votes=self.disk if self.disk.newest >= self.known else Votes(),
            owner=self.owner,
            serves=1,
        )
        self.proving: set[str] = set()
        self.rank: Rank = Rank(self)
        if self.owner:
            self.rank.die()
        if self.asked:  # as the stop file says, which a power cut leaves there
            self.cluster.later(0.25, lambda: self.stop_run(self.asked))
        self._tick(self.starts)

    def _tick(self, start: int) -> None:
        if self.up and self.starts == start:
            self.happen(events.Tick())
            if self.cluster.disorder and self.up:  # what overtook the last report must not stand
                self.tell(self.state.own)
            self.cluster.later(TICK, lambda: self._tick(start))

    def down(self) -> None:
        """End the supervisor and its ranks."""
        if self.up:
            self.up = False
            self.rank.die()
            self.cluster.disconnect(self)

    def owner_says(self) -> None:
        """Hear what the owner wants now."""
        self.happen(events.OwnerSays(self.owner))

    def let_go(self, why: str) -> None:
        """Let the owner have done with the machine, unless it is wanted for another reason now."""
        if self.owner == why:
            self.owner = ""
            self.owner_says()

    def ranks_failed(self, failure: RanksFailure) -> None:
        """Have the supervisor notice that its rank ended by itself."""
        rank, gained = self.rank, self.rank.step - self.rank.formed_at

        def notice() -> None:
            if self.up and self.rank is rank:
                self.happen(events.RanksFailed(failure, gained))

        self.cluster.later(self.cluster.random.uniform(0.1, 2), notice)

    def happen(self, event: Event) -> None:
        """Let an event happen if the supervisor runs, and all that follows; later if it sleeps."""
        if self.asleep:
            self.unheard.append(event)
            return
        following = [event]
        while following and self.up:
            self.state, actions = transition(self.state, following.pop(0), self.cluster.now)
            for action in actions:
                if self.up and (follows := self.carry_out(action)):
                    following.append(follows)
        if self.up:
            self.prove()

    def prove(self) -> None:
        """Try to reach the nodes that are to be reached now."""
        nodes, joining = to_prove(self.state)
        if joining != self.state.reaches.joining:
            self.happen(replace(self.state.reaches, joining=joining, reached=()))
            return
        for node in sorted({*nodes} - {*self.state.reaches.reached} - self.proving):
            self.proving.add(node)
            wait = NO_PROOF if self.cluster.walled(self.name, node) else PROOF
            self.cluster.later(wait, lambda n=node, s=self.starts: self._proved(n, joining, s))

    def _proved(self, node: str, joining: tuple[str, ...], start: int) -> None:
        if self.starts != start or not self.up:
            return
        self.proving.discard(node)
        walled, known = self.cluster.walled(self.name, node), self.state.reaches
        reached = {*known.reached} - {node}
        if not walled and node in self.state.heard and joining == known.joining:
            reached.add(node)
        unreached = {other: why for other, why in known.unreached.items() if other != node}
        if walled:
            unreached[node] = "(a firewall)"
        self.happen(Reaches(tuple(sorted(reached)), known.joining, unreached))

    def wake(self) -> None:
        """Hear what happened while the machine was asleep."""
        unheard, self.unheard = self.unheard, []
        for event in [*unheard, events.Tick()]:
            self.happen(event)

    def tell(self, message: Any, to: str = "") -> None:
        for peer in [to] if to else [*self.state.heard]:
            self.cluster.send(self.name, peer, message)

    def carry_out(self, action: Action) -> Event | None:
        self.cluster.actions.append((self.cluster.now, self.name, action))
        match action:
            case Tell(message, to):
                self.tell(message, to)
            case TellRanks(Form() as order):
                self.rank.obey(Form(*(getattr(order, name) for name in FORM)))
            case TellRanks(order):
                self.rank.obey(order)
            case SaveVotes(votes):
                if self.full:
                    return events.Saved(action, f"the disk of {self.name} is full")
                self.past.append(self.disk)
                self.disk = votes
                if self.crashes_at_save:
                    self.crashes_at_save = False
                    self.cluster.kill(self.name, REBOOT)
                    return None
                return events.Saved(action)
            case RecordTraining(config):
                self.known = config.generation
            case StartTeam(config, fresh):
                order = Form(config.generation, config.nodes, "", 0, (), fresh)
                for node in config.nodes:
                    self.tell(order, node)
                mine = self.name in config.nodes
                return events.PeerSaid(self.name, order) if mine else None
            case RestartRanks():
                self.rank.die()
                self.rank = Rank(self)
            case RestRanks():
                self.rank.die()
            case StopRanks(stop):
                self.asked = stop
            case SendVerdict(outcome):
                self.tell(outcome)
            case Conclude(outcome, everywhere, heard):
                if everywhere and not heard:
                    self.tell(outcome)
                self.outcome = outcome
                self.down()
            case Depart():
                self.down()
        return None

    def hear(self, peer: str, message: Any) -> None:
        self.happen(events.PeerSaid(peer, message))

    def stop_run(self, stop: Stop | None) -> None:
        """Stop the run, and pass the request on."""
        if stop:
            self.happen(events.StopAsked(stop))

    def leave(self, why: str) -> None:
        """Be asked to leave the others in order."""
        self.happen(events.Leaves(why))

    def lost(self, peer: str, why: str) -> None:
        known = self.state.reaches
        kept = {other: why for other, why in known.unreached.items() if other != peer}
        reached = tuple(other for other in known.reached if other != peer)
        self.state = replace(self.state, reaches=Reaches(reached, known.joining, kept))
        self.happen(events.Gone(peer, why))
