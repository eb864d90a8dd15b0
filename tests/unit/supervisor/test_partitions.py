"""No two groups train one run, whatever the network, the nodes and their disks do."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from support.voting_histories import History, Limits, first_violation, search, settled, subsets
from support.voting_network import NAMES, WRONG, Network, Rules, Violation

from hearth.supervisor.decisions import voting
from hearth.supervisor.decisions.voting import Attempt, Refusal

INDEX = st.integers(0, 99)


def chosen(nodes: tuple[str, ...], bits: int) -> tuple[str, ...]:
    """Return the subset of nodes that the bits of a number say."""
    return tuple(node for position, node in enumerate(nodes) if bits >> position & 1)


class AnyNetwork(RuleBasedStateMachine):
    """Any order of events; what must never happen is checked in `Network` after each."""

    @initialize(count=st.integers(2, 5), together=st.booleans())
    def begin(self, count: int, together: bool) -> None:
        self.network = settled(count, Rules()) if together else Network(NAMES[:count])

    def node(self, index: int) -> str:
        nodes = sorted(self.network.up)
        return nodes[index % len(nodes)]

    @precondition(lambda self: self.network.up)
    @rule(index=INDEX, asked=INDEX, leaving=INDEX, fresh=st.booleans())
    def propose(self, index: int, asked: int, leaving: int, fresh: bool) -> None:
        node = self.node(index)
        heard = self.network.votes if fresh else self.network.heard[node]
        others = {n for n in chosen(self.network.nodes, asked) if n in heard and n != node}
        known = {n: heard[n] for n in self.network.nodes if n in others}
        # Mostly nobody leaves.
        gone = chosen(self.network.nodes, leaving) if leaving < 20 else ()
        self.network.propose(node, known, tuple(n for n in gone if n in (node, *known)))

    @precondition(lambda self: any(message.to in self.network.up for message in self.network.wire))
    @rule(index=INDEX, again=st.booleans())
    def deliver(self, index: int, again: bool) -> None:
        messages = [message for message in self.network.wire if message.to in self.network.up]
        self.network.deliver(messages[index % len(messages)], again)

    @precondition(lambda self: self.network.wire)
    @rule(index=INDEX)
    def lose(self, index: int) -> None:
        self.network.lose(self.network.wire[index % len(self.network.wire)])

    @precondition(lambda self: len(self.network.up) > 1)
    @rule(index=INDEX, to=INDEX)
    def report(self, index: int, to: int) -> None:
        self.network.report(self.node(index), self.node(to))

    @precondition(lambda self: self.network.up)
    @rule(index=INDEX)
    def leave(self, index: int) -> None:
        self.network.leave(self.node(index))

    @precondition(lambda self: self.network.up)
    @rule(index=INDEX, disk=st.booleans())
    def crash(self, index: int, disk: bool) -> None:
        node = self.node(index)
        if disk:
            self.network.crash(node)
        else:
            self.network.wipe(node)

    @rule(index=INDEX)
    def start(self, index: int) -> None:
        self.network.start(self.network.nodes[index % len(self.network.nodes)])

    @rule(asked=INDEX)
    def voters_agree_to_an_attempt_from_their_newest_votes(self, asked: int) -> None:
        votes = self.network.votes
        known = {node: votes[node] for node in chosen(self.network.nodes, asked)}
        attempt = voting.may_attempt(known, self.network.nodes)
        if isinstance(attempt, Attempt):
            for node in attempt.voters:
                answer = voting.promise(votes[node], attempt, node, self.network.nodes)
                assert not isinstance(answer, Refusal), answer.reason

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.network.heal()


AnyNetwork.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyNetwork = AnyNetwork.TestCase


def test_random_histories_end_with_one_team_of_all_nodes():
    trained = 0
    for seed in range(500):
        history = History(seed, Rules())
        history.play(120)
        assert history.network.training()[0].nodes == history.network.nodes
        trained += history.network.trained
    assert trained > 1000  # else the histories would show little


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_no_short_history_has_two_groups(count):
    limits = Limits(proposals=2, crashes=1, wipes=1) if count == 2 else Limits(proposals=2)
    assert search(settled(count, Rules()), limits) > 1000


@pytest.mark.parametrize("rules", WRONG, ids=lambda rules: rules.name)
def test_a_wrong_rule_is_found(rules):
    assert first_violation(rules, range(5000), 120)


@pytest.mark.parametrize("rules", WRONG[:4], ids=lambda rules: rules.name)
def test_under_a_wrong_rule_two_groups_train(rules):
    _, violation = first_violation(rules, range(5000), 120, strict=False)
    assert "two groups train at one time" in str(violation)


def test_a_search_finds_a_wrong_rule():
    with WRONG[1].in_force() as rules, pytest.raises(Violation):
        search(settled(2, rules), Limits(proposals=2))


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_of_a_team_exactly_the_quorums_go_on(count):
    network = settled(count, Rules())
    config = network.training()[0]
    for nodes in subsets(network.nodes):
        if nodes:
            known = {node: network.votes[node] for node in nodes}
            may = isinstance(voting.may_attempt(known, network.nodes), Attempt)
            assert may == voting.quorum(nodes, config)
