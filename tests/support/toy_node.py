"""The nodes of a simulated cluster (toy_cluster.py): real councils and votes, each a toy rank."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hearth.ranks.orders import Form, Leave, Load
from hearth.supervisor.cause import LaunchOutcome
from hearth.supervisor.decisions.decide import answer, next_moves
from hearth.supervisor.decisions.notes import Notes
from hearth.supervisor.decisions.reach import to_prove
from hearth.supervisor.decisions.view import (
    Absence,
    Conclude,
    Depart,
    DropProposal,
    Heard,
    Move,
    Proposal,
    ProposeTeam,
    RestartRanks,
    RestRanks,
    SayUnreached,
    SayWaiting,
    StartTeam,
    TellRanks,
    View,
)
from hearth.supervisor.decisions.voting import (
    PROPOSAL_LIFETIME,
    Config,
    Refusal,
    Votes,
    commit,
    promise,
)
from hearth.supervisor.local_ranks import LocalRanks
from hearth.supervisor.messages import Failure, FormTeam, Propose, Report, Stop, Verdict, Vote
from hearth.supervisor.wish import Wish
from support.toy_rank import Rank

if TYPE_CHECKING:
    from support.toy_cluster import Cluster

TICK = 0.5
PROOF, NO_PROOF = 0.01, 4.0
"""Seconds until a node is found to be reached, or not to be."""


class Node:
    """A machine with its disk, and the supervisor that runs on it if it is up."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.disk = Votes()
        self.full = False
        self.up = self.asleep = False
        self.house = ""
        self.kept = 0
        self.asked: Stop | None = None
        self.outcome: LaunchOutcome | None = None
        self.starts = 0

    def boot(self) -> None:
        """Start the supervisor."""
        if self.up or self.outcome:
            return
        self.up, self.starts = True, self.starts + 1
        self.began = self.cluster.now
        self.notes, self.ranks = Notes(), LocalRanks(1)
        self.heard: dict[str, Heard] = {}
        self.gone: dict[str, Absence] = {}
        self.team: Config | None = None
        self.proposal: Proposal | None = None
        self.stop: Stop | None = None
        self.leaving = ""
        self.wish = Wish()
        self.wish.why = self.house
        self.told: Report | None = None
        self.left: Leave | None = None
        self.joining: tuple[str, ...] = ()
        self.reached: set[str] = set()
        self.unreached: set[str] = set()
        self.proving: set[str] = set()
        self.rank: Rank = Rank(self)
        if self.house:
            self.rest()
        if self.asked:  # as the stop file says, which a power cut leaves there
            self.cluster.later(0.25, lambda: self.stop_run(self.asked))
        self._tick(self.starts)

    def _tick(self, start: int) -> None:
        if self.up and self.starts == start:
            self.wake()
            self.cluster.later(TICK, lambda: self._tick(start))

    def down(self) -> None:
        """End the supervisor and its ranks."""
        if self.up:
            self.up = False
            self.rank.die()
            self.cluster.disconnect(self)

    def rest(self) -> None:
        """End the rank, as the house wants the machine."""
        self.rank.die()
        self.ranks.rest()
        self.left = None

    def house_says(self) -> None:
        """Hear what the house wants now."""
        if self.up:
            self.wish.why = self.house
            self.wake()

    def let_go(self, why: str) -> None:
        """Let the house have done with the machine, unless it wants it for another reason now."""
        if self.house == why:
            self.house = ""
            self.house_says()

    def restart_ranks(self) -> None:
        self.rank.die()
        self.ranks.restarted()
        self.left = None
        self.rank = Rank(self)

    def ranks_failed(self, failure: Failure) -> None:
        """Have the supervisor notice that its rank ended by itself."""
        rank = self.rank

        def notice() -> None:
            if self.up and self.rank is rank:
                self.ranks.failed(failure)
                self.wake()

        self.cluster.later(self.cluster.random.uniform(0.1, 2), notice)

    def report(self) -> Report:
        ranks = self.ranks
        wish = self.wish.told(ranks.state, ending=self.left is not None)
        return Report(
            self.name,
            ranks.state,
            self.disk,
            tuple(self.heard),
            self.team.generation if self.team else 0,
            ranks.trained,
            ranks.step,
            ranks.choices,
            ranks.why,
            ranks.failure,
            ranks.ended,
            self.leaving or wish,
            bool(wish and not self.leaving),
            tuple(name for name, each in sorted(self.heard.items()) if each.report.leaving),
            self.stop,
            f"the disk of {self.name} is full" if self.full else "",
            serves=1,
            reached=tuple(sorted(self.reached)),
            joining=self.joining,
            unreached=dict.fromkeys(sorted(self.unreached), "(a firewall)"),
        )

    def view(self) -> View:
        cluster = self.cluster
        return View(
            cluster.now,
            self.began,
            cluster.settings,
            self.report(),
            dict(self.heard),
            dict(self.gone),
            self.team,
            self.proposal,
            False,
            cluster.random.random(),
        )

    def prove(self) -> None:
        """Try to reach the nodes that are to be reached now."""
        nodes, joining = to_prove(self.view())
        if joining != self.joining:
            self.joining, self.reached = joining, set()
        for node in {*nodes} - self.reached - self.proving:
            self.proving.add(node)
            wait = NO_PROOF if self.cluster.walled(self.name, node) else PROOF
            self.cluster.later(wait, lambda n=node, s=self.starts: self._proved(n, joining, s))

    def _proved(self, node: str, joining: tuple[str, ...], start: int) -> None:
        if self.starts != start or not self.up:
            return
        self.proving.discard(node)
        walled = self.cluster.walled(self.name, node)
        if walled or node not in self.heard:
            self.reached.discard(node)
        elif joining == self.joining:
            self.reached.add(node)
        (self.unreached.add if walled else self.unreached.discard)(node)
        self.wake()

    def wake(self) -> None:
        """Have the council decide until it has no more moves."""
        self._decide()
        if self.up and not self.asleep:
            self.prove()

    def _decide(self) -> None:
        for _ in range(8):
            if not self.up or self.asleep:
                return
            report = self.report()
            if report != self.told:
                self.told = report
                self.tell(report)
            moves = next_moves(self.view(), self.notes)
            for move in moves:
                if self.up:
                    self.carry_out(move)
            if not moves:
                return

    def tell(self, message: Any, to: str = "") -> None:
        for peer in [to] if to else [*self.heard]:
            self.cluster.send(self.name, peer, message)

    def carry_out(self, move: Move) -> None:
        self.cluster.moves.append((self.cluster.now, self.name, move))
        match move:
            case TellRanks(order):
                if isinstance(order, Load):
                    self.ranks.told(order)
                self.left = order if isinstance(order, Leave) else self.left
                self.rank.obey(order)
            case ProposeTeam(attempt, fresh):
                promised = promise(self.disk, attempt, self.name, self.cluster.names)
                if isinstance(promised, Votes) and not self.full:
                    self.disk = promised
                    yes = frozenset((self.name,))
                    self.proposal = Proposal(attempt, fresh, self.cluster.now, yes)
                    for voter in {*attempt.voters} - {self.name}:
                        self.tell(Propose(attempt, fresh), voter)
            case DropProposal():
                self.proposal = None
            case StartTeam(config, fresh):
                self.proposal = None
                order = FormTeam(config.generation, config.nodes, "", 0, (), fresh)
                for node in config.nodes:
                    if node != self.name:
                        self.tell(order, node)
                self.form(order)
            case RestartRanks():
                self.restart_ranks()
            case RestRanks():
                self.rest()
            case Conclude(outcome, everywhere):
                if everywhere:
                    self.tell(Verdict(outcome.state, outcome.cause))
                self.conclude(outcome)
            case Depart():
                self.down()
            case SayWaiting() | SayUnreached():
                pass

    def conclude(self, outcome: LaunchOutcome) -> None:
        self.outcome = outcome
        self.down()

    def hear(self, peer: str, message: Any) -> None:
        match message:
            case Report():
                self.heard[peer] = Heard(message, self.cluster.now)
            case Propose():
                found = answer(self.view(), self.notes, message, peer)
                generation = message.attempt.config.generation
                if isinstance(found, Refusal) or self.full:
                    why = found.reason if isinstance(found, Refusal) else "full"
                    self.tell(Vote(generation, False, self.disk, why), peer)
                else:
                    self.disk = found
                    self.tell(Vote(generation, True, self.disk), peer)
            case Vote():
                self._count(peer, message)
            case FormTeam():
                self.form(message)
            case Stop():
                self.stop_run(message)
            case Verdict():
                self.tell(message)
                self.conclude(message.outcome)

    def stop_run(self, stop: Stop | None) -> None:
        """Stop the run, and pass the request on."""
        if self.up and stop and (self.stop is None or (stop.now and not self.stop.now)):
            self.stop = self.asked = stop
            self.tell(stop)

    def _count(self, peer: str, vote: Vote) -> None:
        if peer in self.heard:
            report = replace(self.heard[peer].report, votes=vote.votes)
            self.heard[peer] = Heard(report, self.cluster.now)
        proposal = self.proposal
        if proposal is None or proposal.attempt.config.generation != vote.generation:
            return
        if self.cluster.now - proposal.since > PROPOSAL_LIFETIME:
            self.proposal = None
        elif vote.yes:
            self.proposal = replace(proposal, yes=proposal.yes | {peer})
        else:
            self.proposal = replace(proposal, refused={**proposal.refused, peer: vote.why})

    def form(self, order: FormTeam) -> None:
        config = Config(order.generation, order.nodes)
        committed = commit(self.disk, config)
        if committed is None or self.full:
            return
        self.disk, self.team = committed, config
        form = Form(
            order.generation, order.nodes, order.address, order.port, order.clients, order.fresh
        )
        self.ranks.told(form)
        self.rank.obey(form)

    def lost(self, peer: str, why: str) -> None:
        self.heard.pop(peer, None)
        self.reached.discard(peer)
        self.unreached.discard(peer)
        self.gone[peer] = Absence(why, self.cluster.now)
        if self.proposal and peer in self.proposal.attempt.voters:
            self.proposal = None
        self.wake()
