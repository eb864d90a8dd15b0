"""The voting rule: which nodes may go on as a team, and what each must remember."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearth.supervisor.decisions.voting import (
    Attempt,
    Config,
    Refusal,
    Votes,
    commit,
    learn,
    may_attempt,
    promise,
    quorum,
)

RUN = ("tower", "laptop", "attic", "cellar")
EMPTY = Votes()


def team(generation: int, *nodes: str) -> Config:
    return Config(generation, nodes)


def after(config: Config, *attempts: Config) -> Votes:
    """Return the votes of a node that was in `config` and promised `attempts` since."""
    return Votes(config, attempts, counts=True)


def attempt_of(known: dict[str, Votes], leaving: tuple[str, ...] = (), run=RUN) -> Attempt:
    attempt = may_attempt(known, run, leaving)
    assert isinstance(attempt, Attempt), attempt
    return attempt


def refused(known: dict[str, Votes], leaving: tuple[str, ...] = (), run=RUN) -> Refusal:
    refusal = may_attempt(known, run, leaving)
    assert isinstance(refusal, Refusal), refusal
    return refusal


def agreed(known: dict[str, Votes], leaving: tuple[str, ...] = (), run=RUN) -> dict[str, Votes]:
    """Form the team of all nodes in `known`; return the votes on their disks afterwards."""
    attempt = attempt_of(known, leaving, run)
    votes = {node: promise(its, attempt, node, run) for node, its in known.items()}
    for node in attempt.config.nodes:
        votes[node] = commit(votes[node], attempt.config)
    return votes


WHOLE = after(team(0, *RUN))


def test_the_first_team_needs_all_nodes_of_the_run():
    assert attempt_of(dict.fromkeys(RUN, EMPTY)).config == team(0, *RUN)
    refusal = refused(dict.fromkeys(RUN[:3], EMPTY))
    assert refusal.missing == ("cellar",)
    assert "missing: cellar" in refusal.reason
    assert agreed(dict.fromkeys(RUN, EMPTY)) == dict.fromkeys(RUN, WHOLE)


@pytest.mark.parametrize("nodes", [RUN[:3], RUN[1:], ("tower", "attic")])
def test_more_than_half_or_half_with_the_first_node_go_on(nodes):
    assert attempt_of(dict.fromkeys(nodes, WHOLE)).config == team(1, *nodes)


def test_the_other_half_waits_for_those_who_could_change_it():
    refusal = refused(dict.fromkeys(("laptop", "cellar"), WHOLE))
    assert refusal.missing == ("tower", "attic")
    assert "only 2 of 4 votes are here: laptop, cellar of the last team" in refusal.reason
    assert "half with tower" in refusal.reason


def test_a_lost_node_shrinks_the_team_that_counts():
    votes = agreed(dict.fromkeys(RUN[:3], WHOLE))
    votes = agreed({node: votes[node] for node in ("laptop", "attic")})
    assert attempt_of({"laptop": votes["laptop"]}).config == team(3, "laptop")
    assert refused({"attic": votes["attic"]}).missing == ("laptop",)
    # Half of all nodes, but of older teams: they cannot know that the others went on.
    assert refused({"tower": after(team(1, *RUN[:3])), "cellar": WHOLE}).missing


def test_nodes_that_come_back_count_again_from_then_on():
    votes = dict.fromkeys(RUN, WHOLE) | agreed(dict.fromkeys(RUN[:3], WHOLE))
    assert attempt_of(votes).known == team(1, *RUN[:3])
    assert agreed(votes) == dict.fromkeys(RUN, after(team(2, *RUN)))


def test_a_node_that_leaves_in_order_hands_in_its_vote():
    pair = ("tower", "laptop")
    votes = dict.fromkeys(pair, after(team(0, *pair)))
    assert refused({"laptop": votes["laptop"]}, run=pair).missing == ("tower",)
    votes = agreed(votes, leaving=("tower",), run=pair)
    assert votes["laptop"] == after(team(1, "laptop"))
    assert attempt_of({"laptop": votes["laptop"]}, run=pair).config == team(2, "laptop")
    assert refused({"tower": votes["tower"]}, run=pair).missing == ("laptop",)


@pytest.mark.parametrize(
    ("run", "losses", "teams"),
    [
        (2, ["laptop"], [("tower",)]),
        (2, ["tower"], [None]),
        (3, ["tower"], [RUN[1:3]]),
        (3, ["tower", "attic"], [RUN[1:3], ("laptop",)]),
        (3, ["tower", "laptop"], [RUN[1:3], None]),
        (3, ["tower laptop"], [None]),
        (4, ["attic cellar"], [RUN[:2]]),
        (4, ["tower laptop"], [None]),
        (4, ["tower", "laptop"], [RUN[1:], RUN[2:]]),
        (4, ["tower", "cellar"], [RUN[1:], RUN[1:3]]),
    ],
)
def test_the_examples_of_the_page_on_lost_nodes(run, losses, teams):
    nodes = RUN[:run]
    votes = agreed(dict.fromkeys(nodes, EMPTY), run=nodes)
    for lost, expected in zip(losses, teams, strict=True):
        votes = {node: its for node, its in votes.items() if node not in lost.split()}
        if expected is None:
            assert refused(votes, run=nodes)
        else:
            assert attempt_of(votes, run=nodes).config.nodes == expected
            votes = agreed(votes, run=nodes)


def test_no_team_is_left_if_all_leave():
    assert "no team is left" in refused(dict.fromkeys(RUN, WHOLE), leaving=RUN).reason


def test_an_attempt_that_may_have_succeeded_counts_like_a_team():
    tried = team(1, "tower", "laptop")
    known = {"laptop": after(team(0, *RUN), tried), "attic": WHOLE, "cellar": WHOLE}
    refusal = refused(known)
    assert refusal.missing == ("tower",)
    assert "team that was tried" in refusal.reason
    assert attempt_of(known | {"tower": WHOLE}).config.generation == 2


def test_an_empty_disk_is_taken_in_but_does_not_count():
    pair = dict.fromkeys(("laptop", "attic"), WHOLE)
    refusal = refused(pair | {"tower": EMPTY})
    assert "tower lost the disk's memory" in refusal.reason
    assert refusal.missing == ("cellar",)
    known = dict.fromkeys(RUN[1:], WHOLE) | {"tower": EMPTY}
    attempt = attempt_of({node: known[node] for node in RUN})
    assert attempt.counted == RUN[1:]
    assert attempt.config.nodes == RUN


def test_an_empty_disk_counts_again_once_it_committed_a_team():
    known = {"tower": EMPTY} | dict.fromkeys(("laptop", "attic", "cellar"), WHOLE)
    votes = agreed(known, leaving=("cellar",))
    assert votes["tower"].counts
    assert attempt_of({node: votes[node] for node in ("tower", "attic")}).counted == (
        "tower",
        "attic",
    )


def test_an_empty_disk_counts_when_others_committed_what_it_promised():
    attempt = attempt_of(dict.fromkeys(RUN, EMPTY))
    promised = promise(EMPTY, attempt, "laptop", RUN)
    assert not promised.counts
    assert learn(promised, attempt.config).counts
    assert not learn(EMPTY, attempt.config).counts
    known = {"laptop": promised, "attic": WHOLE, "cellar": WHOLE}
    assert attempt_of(known).counted == ("laptop", "attic", "cellar")


def test_when_all_nodes_vote_nothing_else_matters():
    known = {
        "tower": EMPTY,
        "laptop": after(team(0, *RUN), team(5, "laptop", "cellar")),
        "attic": EMPTY,
        "cellar": EMPTY,
    }
    assert attempt_of(known).config == team(6, *RUN)


def test_a_node_checks_an_attempt_against_its_own_memory():
    attempt = attempt_of(dict.fromkeys(RUN[:3], WHOLE))
    newer = after(team(4, "attic", "cellar"))
    assert "comes too late" in promise(newer, attempt, "attic", RUN).reason
    tried = after(team(0, *RUN), team(1, "attic", "cellar"))
    assert "comes too late" in promise(tried, attempt, "attic", RUN).reason
    later = Attempt(team(9, *attempt.config.nodes), (), attempt.counted, attempt.known)
    tried = after(team(0, *RUN), team(1, "cellar", "attic"))
    assert promise(tried, later, "attic", RUN).missing == ("cellar",)
    assert "no vote" in promise(WHOLE, attempt, "cellar", RUN).reason
    assert "empty disk" in promise(EMPTY, attempt, "attic", RUN).reason


def test_a_node_promises_a_generation_once():
    attempt = attempt_of(dict.fromkeys(RUN, WHOLE))
    votes = promise(WHOLE, attempt, "attic", RUN)
    assert "comes too late" in promise(votes, attempt, "attic", RUN).reason


def test_only_the_newest_promise_is_committed_and_only_once():
    first, second = team(1, *RUN), team(2, *RUN[:3])
    votes = after(team(0, *RUN), first, second)
    assert commit(votes, first) is None
    assert commit(votes, team(2, *RUN)) is None
    assert commit(votes, second) == after(second)
    assert commit(after(second), second) is None
    # Word of another member may arrive before the order to form the group.
    assert commit(learn(votes, second), second) == after(second)


def test_attempts_of_the_same_nodes_again_and_again_are_remembered_once():
    votes = after(Config(1, ("a", "b", "c")), Config(2, ("a", "b")), Config(3, ("b", "c")))
    for generation in range(4, 20):
        config = Config(generation, ("a", "b"))
        votes = promise(votes, Attempt(config, (), ("a", "b"), None), "a", ("a", "b", "c"))
    assert votes.attempts == (Config(3, ("b", "c")), Config(19, ("a", "b")))


def test_learning_clears_older_attempts_and_never_goes_back():
    votes = after(team(3, *RUN), team(4, "attic"), team(6, *RUN))
    assert learn(votes, team(2, "tower")) == votes
    assert learn(votes, None) == votes
    assert learn(votes, team(5, "tower")) == after(team(5, "tower"), team(6, *RUN))


CONFIGS = st.builds(
    Config,
    st.integers(0, 99),
    st.sets(st.sampled_from(RUN), min_size=1).map(lambda chosen: tuple(sorted(chosen))),
)


@given(CONFIGS, st.sets(st.sampled_from(RUN)), st.sets(st.sampled_from(RUN)))
def test_two_quorums_of_a_team_share_a_node(config, one, other):
    if quorum(one, config) and quorum(other, config):
        assert one & other & set(config.nodes)
