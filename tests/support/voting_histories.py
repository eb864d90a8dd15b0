"""Histories of a simulated network: at random from a number, or all that are short."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations

from hearth.supervisor.decisions.voting import Refusal
from support.voting_network import NAMES, Message, Network, Rules, Violation

EVENTS = {
    "deliver": 60,
    "report": 4,
    "propose": 10,
    "cut": 3,
    "mend": 2,
    "leave": 1,
    "crash": 1,
    "start": 3,
    "wipe": 0.5,
    "lose": 2,
    "again": 1,
    "late": 2,
}
"""Kinds of events and how often each is drawn, relative to the others."""


class History:
    """A history drawn from the number `seed`: events of a cut and mended network.

    Messages between parts that are cut off from each other stay under way: they are lost, or
    arrive late, or after the cut is mended.
    """

    def __init__(self, seed: int, rules: Rules, strict: bool = True) -> None:
        self._draw = random.Random(seed)
        self.network = Network(NAMES[: self._draw.randint(2, 5)], rules, strict)
        self._part = dict.fromkeys(self.network.nodes, 0)
        self.events: Counter[str] = Counter()

    def play(self, steps: int) -> None:
        """Play some events, then bring all nodes back. Raises `Violation`.

        Half of the histories begin with a team of all nodes, half with empty disks.
        """
        if self._draw.random() < 0.5:
            self.network.heal()
        kinds = self._draw.choices(list(EVENTS), list(EVENTS.values()), k=steps)
        for kind in kinds:
            self.events[kind] += bool(getattr(self, f"_{kind}")())
        self.network.heal()

    def _reaches(self, message: Message) -> bool:
        return self._part[message.sender] == self._part[message.to]

    def _any(self, up: bool = True) -> str | None:
        nodes = [node for node in self.network.nodes if (node in self.network.up) == up]
        return self._draw.choice(nodes) if nodes else None

    def _under_way(self, reached: bool | None = None) -> Message | None:
        messages = [
            message
            for message in self.network.wire
            if message.to in self.network.up and reached in (None, self._reaches(message))
        ]
        return self._draw.choice(messages) if messages else None

    def _deliver(self) -> bool:
        if message := self._under_way(reached=True):
            self.network.deliver(message)
        return message is not None

    def _again(self) -> bool:
        if message := self._under_way(reached=True):
            self.network.deliver(message, again=True)
        return message is not None

    def _late(self) -> bool:
        if message := self._under_way(reached=False):
            self.network.deliver(message)
        return message is not None

    def _lose(self) -> bool:
        if message := self._under_way():
            self.network.lose(message)
        return message is not None

    def _report(self) -> bool:
        if node := self._any():
            for other in sorted(self.network.up - {node}):  # a seed is one history
                if self._part[node] == self._part[other]:
                    self.network.report(node, other)
        return node is not None

    def _propose(self) -> bool:
        if not (node := self._any()):
            return False
        reached = sorted(n for n in self.network.up if self._part[n] == self._part[node])
        heard = self.network.heard[node]
        if self._draw.random() < 0.5:  # their newest reports have just arrived
            heard |= {other: self.network.votes[other] for other in reached}
        asked = [n for n in reached if n != node and n in heard and self._draw.random() < 0.9]
        known = {other: heard[other] for other in asked}
        leaving = tuple(each for each in (node, *known) if self._draw.random() < 0.05)
        self.network.propose(node, known, leaving)
        return True

    def _cut(self) -> bool:
        self._part = {node: self._draw.randrange(2) for node in self.network.nodes}
        return True

    def _mend(self) -> bool:
        self._part = dict.fromkeys(self.network.nodes, 0)
        return True

    def _leave(self) -> bool:
        if node := self._any():
            self.network.leave(node)
        return node is not None

    def _crash(self) -> bool:
        if node := self._any():
            self.network.crash(node)
        return node is not None

    def _start(self) -> bool:
        if node := self._any(up=False):
            self.network.start(node)
        return node is not None

    def _wipe(self) -> bool:
        if node := self._any():
            self.network.wipe(node)
        return node is not None


@dataclass(frozen=True)
class Limits:
    """Bounds of a search: how many events of a kind there may be in a history."""

    proposals: int
    crashes: int = 0
    wipes: int = 0


def subsets(nodes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield all subsets, the empty one first."""
    return chain.from_iterable(combinations(nodes, count) for count in range(len(nodes) + 1))


def settled(count: int, rules: Rules) -> Network:
    """Return a network of `count` nodes that all train together, as a launch begins."""
    network = Network(NAMES[:count], rules)
    network.heal()
    return network


def search(network: Network, limits: Limits) -> int:
    """Play every history within the limits that begins here; return the number of states.

    A proposer knows the votes of all nodes it asks as they are when it proposes; they change while
    its proposal is under way. Answers arrive at once, which loses nothing: the order to form a
    group, which follows the last one, may arrive at any time after it. Messages that no node would
    follow any more are dropped. Raises `Violation`.
    """
    spent = (0, 0, 0)
    layer = {(network.state(), spent): (network, spent)}
    seen = set(layer)
    while layer:
        following = {}
        for state, used in layer.values():
            for after, use in _next(state, used, limits):
                _drop_outdated(after)
                key = (after.state(), use)
                if key not in seen:
                    seen.add(key)
                    following[key] = after, use
        layer = following
    return len(seen)


Spent = tuple[int, int, int]


def _next(network: Network, used: Spent, limits: Limits) -> Iterator[tuple[Network, Spent]]:
    """Yield the network after each event that may follow."""
    proposals, crashes, wipes = used
    for message in network.wire:
        after = network.copy()
        after.deliver(message)
        for answer in [each for each in after.wire if each.kind == "vote"]:
            after.deliver(answer)
        yield after, used
    for node in network.nodes:
        if proposals < limits.proposals:
            for after in _proposals(network, node):
                yield after, (proposals + 1, crashes, wipes)
        if crashes < limits.crashes:
            after = network.copy()
            after.crash(node)
            after.start(node)
            yield after, (proposals, crashes + 1, wipes)
        if wipes < limits.wipes:
            after = network.copy()
            after.wipe(node)
            after.start(node)
            yield after, (proposals, crashes, wipes + 1)


def _proposals(network: Network, node: str) -> Iterator[Network]:
    """Yield the network after each attempt that a node may propose now."""
    for asked in subsets(tuple(each for each in network.nodes if each != node)):
        known = {each: network.votes[each] for each in asked}
        for leaving in subsets((node, *asked)):
            after = network.copy()
            if not isinstance(after.propose(node, known, leaving), Refusal):
                yield after


def _drop_outdated(network: Network) -> None:
    """Drop requests to promise, and orders to form a group, that their nodes will never follow."""

    def matters(message: Message) -> bool:
        votes = network.votes[message.to]
        if message.kind == "propose":
            attempt = message.body
            generation = attempt.config.generation
            return generation > votes.newest and (message.sender, generation) in network.opened
        return votes.attempts[-1:] == (message.body,)

    network.wire = [message for message in network.wire if matters(message)]
    network.opened = {
        (proposer, generation): (attempt, yes)
        for (proposer, generation), (attempt, yes) in network.opened.items()
        if all(
            voter in yes or Message("propose", proposer, voter, attempt) in network.wire
            for voter in attempt.voters
        )
    }


def first_violation(
    rules: Rules, seeds: range, steps: int, strict: bool = True
) -> tuple[int, Violation] | None:
    """Return the first of the histories from `seeds` with a violation, and that; None without one.

    Unless `strict`, only two groups that train at one time are one.
    """
    with rules.in_force():
        for seed in seeds:
            try:
                History(seed, rules, strict).play(steps)
            except Violation as violation:
                return seed, violation
    return None
