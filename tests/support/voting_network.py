"""A simulated network of nodes that vote on teams: messages late, lost or twice, nodes that crash.

It keeps to the rules that `decisions.voting` asks of its callers, and checks after every event that
they hold. `Rules` other than Hearth's show that the checks find errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple
from unittest.mock import patch

from hearth.supervisor.decisions import voting
from hearth.supervisor.decisions.voting import Attempt, Config, Refusal, Votes

NAMES = ("tower", "laptop", "attic", "cellar", "shed")


class Violation(AssertionError):
    """The rule failed to prevent two groups."""


class Message(NamedTuple):
    """A message under way: `body` is a node's votes, an attempt to vote on, or a team."""

    kind: str
    sender: str
    to: str
    body: Any


@dataclass(frozen=True)
class Rules:
    """Hearth's rule, or one that is wrong in one respect.

    Args:
        name: the difference from Hearth's.
        changed: functions of hearth.supervisor.decisions.voting that are replaced.
        waits_for_all: whether a proposer waits for the promise of every voter.
        leaves_first: whether a node that promises leaves its group.
        saves: whether a promise survives a crash.
    """

    name: str = "Hearth's"
    changed: tuple[tuple[str, Callable[..., Any]], ...] = ()
    waits_for_all: bool = True
    leaves_first: bool = True
    saves: bool = True

    @contextmanager
    def in_force(self) -> Iterator[Rules]:
        """Replace the functions for the block."""
        with ExitStack() as stack:
            for name, function in self.changed:
                stack.enter_context(patch.object(voting, name, function))
            yield self


@dataclass
class Network:
    """Nodes, their disks, and the messages between them.

    A group trains while each of its members has followed the order to form it and has not left it.
    `strict`: whether teams are checked as soon as they are agreed, and not only when they train.
    """

    nodes: tuple[str, ...]
    rules: Rules = field(default_factory=Rules)
    strict: bool = True
    up: set[str] = field(default_factory=set)
    votes: dict[str, Votes] = field(default_factory=dict)
    disks: dict[str, Votes] = field(default_factory=dict)
    groups: dict[str, Config] = field(default_factory=dict)
    heard: dict[str, dict[str, Votes]] = field(default_factory=dict)
    opened: dict[tuple[str, int], tuple[Attempt, frozenset[str]]] = field(default_factory=dict)
    wire: list[Message] = field(default_factory=list)
    agreed: dict[int, Attempt] = field(default_factory=dict)
    remembering: dict[int, frozenset[str]] = field(default_factory=dict)
    trained: int = 0

    def __post_init__(self) -> None:
        if not self.disks:
            self.up = set(self.nodes)
            self.votes = dict.fromkeys(self.nodes, Votes())
            self.disks = dict(self.votes)
            self.heard = {node: {} for node in self.nodes}

    def copy(self) -> Network:
        """Return a network in the same state that goes its own way."""
        return replace(
            self,
            up=set(self.up),
            votes=dict(self.votes),
            disks=dict(self.disks),
            groups=dict(self.groups),
            heard={node: dict(its) for node, its in self.heard.items()},
            opened=dict(self.opened),
            wire=list(self.wire),
            agreed=dict(self.agreed),
            remembering=dict(self.remembering),
        )

    def state(self) -> object:
        """Return all that decides about the future, to compare two networks by."""
        return (
            frozenset(self.up),
            tuple(self.votes[node] for node in self.nodes),
            tuple(self.disks[node] for node in self.nodes),
            tuple(self.groups.get(node) for node in self.nodes),
            frozenset(self.opened.items()),
            frozenset(self.wire),
            frozenset(self.agreed.items()),
            frozenset(self.remembering.items()),
        )

    def training(self) -> list[Config]:
        """Return the teams whose members are all in the group."""
        groups = set(self.groups.values())
        return [g for g in groups if all(self.groups.get(node) == g for node in g.nodes)]

    def report(self, node: str, to: str) -> None:
        """Send a node's votes to another."""
        self.wire.append(Message("report", node, to, self.votes[node]))

    def propose(
        self, node: str, known: dict[str, Votes], leaving: tuple[str, ...] = ()
    ) -> Attempt | Refusal:
        """Let a node propose a team of itself and those whose votes it knows to be `known`."""
        attempt = voting.may_attempt({**known, node: self.votes[node]}, self.nodes, leaving)
        if isinstance(attempt, Refusal) or not self._promise(node, attempt):
            return attempt
        self.opened[node, attempt.config.generation] = attempt, frozenset()
        for voter in attempt.voters:
            if voter != node:
                self.wire.append(Message("propose", node, voter, attempt))
        self._count(node, node, attempt.config.generation)
        return attempt

    def deliver(self, message: Message, again: bool = False) -> None:
        """Let a message arrive; it stays under way if it arrives `again` later."""
        if not again:
            self.wire.remove(message)
        kind, sender, to, body = message
        if kind == "report":
            self.heard[to][sender] = body
        elif kind == "propose":
            if self._promise(to, body):
                self.wire.append(Message("vote", to, sender, body.config.generation))
        elif kind == "vote":
            self._count(to, sender, body)
        elif (votes := voting.commit(self.votes[to], body)) is not None:
            self.votes[to] = self.disks[to] = votes
            self.groups[to] = body
            self._check_training(body)

    def lose(self, message: Message) -> None:
        """Let a message never arrive."""
        self.wire.remove(message)

    def leave(self, node: str) -> None:
        """Let a node's ranks leave their group."""
        self.groups.pop(node, None)

    def crash(self, node: str) -> None:
        """Turn a node off; its disk stays, and messages to it are lost."""
        self.up.discard(node)
        self.groups.pop(node, None)
        self.heard[node] = {}
        self.votes[node] = self.disks[node]
        self.opened = {key: its for key, its in self.opened.items() if key[0] != node}
        self.wire = [message for message in self.wire if message.to != node]

    def start(self, node: str) -> None:
        """Turn a node on."""
        self.up.add(node)

    def wipe(self, node: str) -> None:
        """Crash a node that loses its disk, which takes longer than an attempt is kept open."""
        self.crash(node)
        self.votes[node] = self.disks[node] = Votes()
        self.opened = {
            key: (attempt, yes)
            for key, (attempt, yes) in self.opened.items()
            if node not in attempt.voters
        }
        for generation, nodes in list(self.remembering.items()):
            self.remembering[generation] = nodes - {node}
            if nodes == {node}:  # nobody is left who could know of it
                del self.remembering[generation], self.agreed[generation]

    def heal(self) -> None:
        """Bring all nodes back, with no message under way, and let them form a team of all."""
        self.wire.clear()
        self.opened.clear()
        self.up = set(self.nodes)
        attempt = self.propose(self.nodes[0], dict(self.votes))
        while self.wire:
            self.deliver(self.wire[0])
        if isinstance(attempt, Refusal) or self.training() != [Config(*_of(attempt))]:
            raise Violation(f"all nodes are back, and no team of all forms: {attempt}")

    def _promise(self, node: str, attempt: Attempt) -> bool:
        votes = voting.promise(self.votes[node], attempt, node, self.nodes)
        if isinstance(votes, Refusal):
            return False
        self.votes[node] = votes
        if self.rules.saves:
            self.disks[node] = votes
        if self.rules.leaves_first:
            self.leave(node)
        return True

    def _count(self, proposer: str, voter: str, generation: int) -> None:
        if (proposer, generation) not in self.opened:
            return
        attempt, yes = self.opened[proposer, generation]
        yes |= {voter}
        self.opened[proposer, generation] = attempt, yes
        if self.rules.waits_for_all and not yes.issuperset(attempt.voters):
            return
        del self.opened[proposer, generation]
        self._check_agreed(attempt)
        for node in attempt.config.nodes:
            self.wire.append(Message("form", proposer, node, attempt.config))

    def _check_agreed(self, attempt: Attempt) -> None:
        """Check that no other team has this generation, and that it shares a node with the last."""
        new = attempt.config
        if self.strict and new.generation in self.agreed:
            other = self.agreed[new.generation].config
            raise Violation(f"two teams of one generation: {other} and {new}")
        self.agreed[new.generation] = attempt
        self.remembering[new.generation] = frozenset(attempt.voters)
        order = sorted(self.agreed)
        for older, newer in pairwise(order):
            nodes = self.agreed[older].config.nodes
            if self.strict and not set(nodes) & set(self.agreed[newer].voters):
                raise Violation(f"{self.agreed[newer]} shares no node with generation {older}")

    def _check_training(self, entered: Config) -> None:
        """Check that a group that may have become complete is the only one that trains."""
        groups = self.training()
        if len(groups) > 1:
            raise Violation(f"two groups train at one time: {sorted(map(str, groups))}")
        self.trained += groups == [entered]


def _of(attempt: Attempt) -> tuple[int, tuple[str, ...]]:
    return attempt.config.generation, attempt.config.nodes


def _half_is_enough(voters: Any, config: Config) -> bool:
    return 2 * sum(node in voters for node in config.nodes) >= len(config.nodes)


def _attempts_forgotten(
    voters: Any, counted: Any, run: Any, committed: Any, _: Any, real: Any = voting._objection
) -> Refusal | None:
    return real(voters, counted, run, committed, ())


def _empty_disk_counts(votes: Votes, committed: Any, real: Any = voting.learn) -> Votes:
    return replace(real(votes, committed), counts=True)


def _any_form_followed(votes: Votes, config: Config) -> Votes | None:
    if config not in votes.attempts:
        return None
    return replace(votes, committed=config, counts=True)


def _promise_unchecked(votes: Votes, attempt: Attempt, *_: Any) -> Votes | Refusal:
    if attempt.config.generation <= votes.newest:
        return Refusal("too late")
    mine = voting.learn(votes, attempt.known)
    return replace(mine, attempts=(*mine.attempts, attempt.config))


WRONG = (
    Rules("attempts are not remembered", (("_objection", _attempts_forgotten),)),
    Rules("either half may go on", (("quorum", _half_is_enough),)),
    Rules("the team is formed before all have promised", waits_for_all=False),
    Rules("a node promises without leaving its group", leaves_first=False),
    Rules("a promise is lost in a crash", saves=False),
    Rules("an empty disk counts at once", (("learn", _empty_disk_counts),)),
    Rules("an outdated order to form is followed", (("commit", _any_form_followed),)),
    Rules("a node trusts what the proposer knows", (("promise", _promise_unchecked),)),
)
"""Rules that are wrong in one respect each."""
