"""A node's votes and its own proposal: nothing counts that is not on the disk."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from hearth.supervisor import vote_store
from hearth.supervisor.decisions.voting import PROPOSAL_LIFETIME, Attempt, Config, Votes
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


def on_disk(own) -> dict:
    return json.loads((own._file.folder / "votes.json").read_text())


def test_votes_are_on_the_disk_once_they_are_saved(own):
    assert asyncio.run(own.save(Votes(TEAM, (), counts=True))) == ""
    assert on_disk(own)["committed"] == TEAM.to_dict()


def test_a_disk_that_takes_no_votes_says_why(own, monkeypatch):
    def save(file, votes):
        raise VotesError("no space left")

    monkeypatch.setattr(vote_store.VotesFile, "save", save)
    assert asyncio.run(own.save(Votes())) == "no space left"
    assert not own.stuck


def test_a_vote_that_is_long_on_its_way_to_the_disk_is_stuck_there(own, clock, monkeypatch):
    seen = []

    def save(votes):
        for seconds in (PROPOSAL_LIFETIME, 0.1):
            clock.now += seconds
            seen.append(own.stuck)

    monkeypatch.setattr(vote_store.VotesFile, "save", lambda self, votes: save(votes))
    assert asyncio.run(own.save(Votes())) == ""
    assert seen == [False, True]
    assert not own.stuck


@pytest.mark.parametrize(("token", "kept"), [("secret", True), ("new", False)])
def test_votes_of_an_earlier_launch_are_forgotten_and_those_of_this_one_kept(
    own, tmp_path, token, kept
):
    votes = Votes(None, (TEAM,))
    asyncio.run(own.save(votes))
    spec = SimpleNamespace(results=tmp_path, run="first", node="desk", nodes=NODES, token=token)
    again = VoteStore(spec, own.log.append)
    assert again.read() == (votes if kept else Votes())
    assert not own.log
