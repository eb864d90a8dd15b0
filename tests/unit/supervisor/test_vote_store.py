"""A node's votes and its own proposal: nothing counts that is not on the disk."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from hearth.supervisor import vote_store
from hearth.supervisor.decisions.voting import PROPOSAL_LIFETIME, Attempt, Config, Votes
from hearth.supervisor.messages import Vote
from hearth.supervisor.vote_store import VotesError, VoteStore

NODES = ("desk", "laptop")
TEAM = Config(1, NODES)
ATTEMPT = Attempt(TEAM, (), (), None)


@pytest.fixture
def clock(monkeypatch):
    """A clock of the vote store that the test sets."""
    time = SimpleNamespace(now=100.0)
    monkeypatch.setattr(vote_store, "boot_clock", lambda: time.now)
    return time


@pytest.fixture
def own(tmp_path, clock):
    log: list[str] = []
    spec = SimpleNamespace(results=tmp_path, run="first", node="desk", nodes=NODES, token="secret")
    own = VoteStore(spec, log.append)
    own.log = log
    return own


def yes(generation: int = 1) -> Vote:
    return Vote(generation, True, Votes(None, (TEAM,)))


def on_disk(own) -> dict:
    return json.loads((own._file.folder / "votes.json").read_text())


def test_a_proposal_is_promised_on_the_disk_before_anybody_is_asked(own):
    assert asyncio.run(own.propose(ATTEMPT, True))
    assert on_disk(own)["attempts"] == [TEAM.to_dict()]
    assert own.proposal.yes == {"desk"}
    own.count("laptop", yes())
    assert own.proposal.yes == {*NODES}
    assert own.close()
    assert own.proposal is None
    assert asyncio.run(own.commit(TEAM))
    assert own.votes == Votes(TEAM, (), counts=True)
    assert on_disk(own)["committed"] == TEAM.to_dict()


def test_a_vote_that_is_long_on_its_way_to_the_disk_is_stuck_there(own, clock, monkeypatch):
    seen = []

    def save(votes):
        for seconds in (PROPOSAL_LIFETIME, 0.1):
            clock.now += seconds
            seen.append(own.stuck)

    monkeypatch.setattr(vote_store.VotesFile, "save", lambda self, votes: save(votes))
    assert asyncio.run(own.save(Votes()))
    assert seen == [False, True]
    assert not own.stuck


def test_an_order_for_a_team_that_was_not_promised_last_is_ignored(own):
    asyncio.run(own.propose(ATTEMPT, True))
    assert not asyncio.run(own.commit(Config(2, NODES)))
    assert "old order" in own.log[-1]
    assert own.votes.committed is None


def test_votes_for_another_proposal_or_too_late_do_not_count(own, clock):
    asyncio.run(own.propose(ATTEMPT, True))
    own.count("laptop", yes(generation=7))
    assert own.proposal.yes == {"desk"}
    clock.now += PROPOSAL_LIFETIME + 0.1
    own.count("laptop", yes())
    assert own.proposal is None
    assert not own.close()


def test_a_team_is_not_made_of_a_proposal_that_is_too_old(own, clock):
    asyncio.run(own.propose(ATTEMPT, True))
    own.count("laptop", yes())
    clock.now += PROPOSAL_LIFETIME + 0.1
    assert not own.close()


def test_a_refusal_is_kept_with_its_reason(own):
    asyncio.run(own.propose(ATTEMPT, True))
    own.count("laptop", Vote(1, False, Votes(), "its ranks are in a group"))
    assert own.proposal.refused == {"laptop": "its ranks are in a group"}


@pytest.mark.parametrize(("node", "kept"), [("laptop", False), ("tower", True)])
def test_a_proposal_is_forgotten_when_the_connection_to_a_voter_breaks(own, node, kept):
    asyncio.run(own.propose(ATTEMPT, True))
    own.lost(node)
    assert (own.proposal is not None) == kept


def test_a_full_disk_takes_the_vote_until_there_is_room_again(own, clock, monkeypatch):
    full = VotesError("no space left")

    def save(file, votes):
        raise full

    with monkeypatch.context() as patch:
        patch.setattr(vote_store.VotesFile, "save", save)
        for _ in range(2):
            assert not asyncio.run(own.propose(ATTEMPT, True))
        asyncio.run(own.retry())
    assert own.voteless == "no space left"
    assert own.log == ["no space left"]
    assert own.votes == Votes()
    assert own.proposal is None
    asyncio.run(own.retry())
    assert own.voteless  # tried a moment ago
    clock.now += 1.1
    asyncio.run(own.retry())
    assert own.voteless == ""
    assert asyncio.run(own.propose(ATTEMPT, True))


def test_a_disk_that_is_full_since_the_promise_holds_up_no_team(own, monkeypatch):
    asyncio.run(own.propose(ATTEMPT, True))

    def save(file, votes):
        raise VotesError("no space left")

    monkeypatch.setattr(vote_store.VotesFile, "save", save)
    assert asyncio.run(own.commit(TEAM))
    assert own.votes == Votes(TEAM, (), counts=True)
    assert own.voteless == "no space left"


@pytest.mark.parametrize(("token", "kept"), [("secret", True), ("new", False)])
def test_votes_of_an_earlier_launch_are_forgotten_and_those_of_this_one_kept(
    own, tmp_path, token, kept
):
    asyncio.run(own.propose(ATTEMPT, True))
    spec = SimpleNamespace(results=tmp_path, run="first", node="desk", nodes=NODES, token=token)
    again = VoteStore(spec, own.log.append)
    again.open()
    assert again.votes == (own.votes if kept else Votes())
    assert not own.log
